"""Not Tecorigin's torch_sdaa: a simulation for tests, with the names of its surface file.

No source of the vendor's is public: the surface file lists names that others were seen to use. What
nobody was seen to use, `is_initialized` for one, is absent here.
"""

from accel_simulated import vendor_package

__version__ = "3.2+simulated"

vendor_package.start("sdaa")

import torch_sdaa.sdaa

vendor_package.finish(torch_sdaa.sdaa)
