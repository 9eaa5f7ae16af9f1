"""Not Biren's torch_supa: a simulation for tests, with the names of its surface file.

The vendor's replaces `torch.cuda` when torch loads it as an extension; this one has no such entry point.
"""

from accel_simulated import vendor_package

__version__ = "1.0.0.21300+simulated"

vendor_package.start("supa")

import torch_supa.supa

vendor_package.finish(torch_supa.supa)
