"""A simulation of Biren's torch_supa for tests, with the names in its surface file.

The vendor's package replaces `torch.cuda` when torch loads it as an extension. The simulation has no entry
point for that.
"""

from accel_simulated import vendor_package

__version__ = "1.0.0.21300+simulated"

vendor_package.load_device("supa")

import torch_supa.supa

vendor_package.register_module(torch_supa.supa)
