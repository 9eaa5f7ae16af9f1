"""A simulation of Tecorigin's torch_sdaa for tests, with the names in its surface file.

The vendor has not published its source, so the surface file lists the names that public code uses. Other
names, such as `is_initialized`, are absent.
"""

from accel_simulated import vendor_package

__version__ = "3.2+simulated"

vendor_package.load_device("sdaa")

import torch_sdaa.sdaa

vendor_package.register_module(torch_sdaa.sdaa)
