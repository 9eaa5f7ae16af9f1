"""Not Huawei's torch_npu: a simulation for tests, with the names of its surface file.

The operators of `torch_npu` itself, `contrib`, the profiler and the compilers are not here.
"""

from accel_simulated import vendor_package

__version__ = "2.13.0+simulated"


def _autoload():
    """Do nothing: torch calls this at its import, and importing this module was all."""


vendor_package.start("npu")

import torch_npu.npu
import torch_npu.npu.amp

vendor_package.finish(torch_npu.npu)
