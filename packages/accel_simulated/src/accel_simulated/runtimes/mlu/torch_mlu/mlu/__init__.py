"""`torch.mlu`, simulated with the names in its surface file; a test compares the parameters."""

from accel_simulated.parts.devices import device
from accel_simulated.parts.devices import get_device_properties as _sim_properties
from accel_simulated.surface import add_vendor_names
from torch_mlu.mlu import cncl, graphs, memory, random, streams
from torch_mlu.mlu.cncl import is_cncl_available
from torch_mlu.mlu.graphs import MLUGraph, graph

_initialized = False
default_generators = ()  # filled when the runtime starts
Device = device


def get_device_properties(device):
    return _sim_properties(device)


def is_fp8_supported(including_emulation=True):
    return False


add_vendor_names(globals(), "torch.mlu")
del add_vendor_names
