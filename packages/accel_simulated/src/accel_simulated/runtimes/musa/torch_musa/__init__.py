"""A simulation of Moore Threads' torch_musa for tests, with the names in its surface file.

Like the vendor's package, this package is also the module `torch.musa`. The vendor's package is loaded with
torch, and runs `torch.cuda` on the vendor's runtime; the simulation does neither.
"""

import sys as _sim_sys

from accel_simulated import vendor_package as _sim_vendor_package

__version__ = "2.11.0.post2+simulated"

_sim_vendor_package.load_device("musa")

from accel_simulated.parts.devices import device
from accel_simulated.parts.dtypes import is_bf16_supported as _sim_is_bf16_supported
from accel_simulated.parts.graphs import Capture as _sim_Capture
from accel_simulated.parts.graphs import VendorGraph as _sim_Graph
from accel_simulated.surface import add_vendor_names
from torch_musa.core import mccl, memory

_initialized = False
default_generators = ()  # filled when the runtime starts


def is_bf16_supported(including_emulation=True):
    return _sim_is_bf16_supported()


class MUSAGraph(_sim_Graph):
    def capture_begin(self, pool=None, capture_error_mode="global"):
        self._sim_capture_begin(pool, capture_error_mode)


class graph(_sim_Capture):
    def __init__(self, musa_graph, pool=None, stream=None, capture_error_mode="global"):
        super().__init__(
            musa_graph, {"pool": pool, "capture_error_mode": capture_error_mode}, stream
        )


add_vendor_names(globals(), "torch.musa")
del add_vendor_names

_sim_vendor_package.register_module(_sim_sys.modules[__name__])
