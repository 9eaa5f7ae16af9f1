"""`torch.npu.random`, simulated."""

from accel_simulated.parts import lifecycle as _sim_lifecycle
from accel_simulated.surface import add_vendor_names


def _lazy_call(cb):
    _sim_lifecycle._lazy_call(cb)


def get_default_generator(device_index):
    return _sim_lifecycle.cached_generators()[device_index]


add_vendor_names(globals(), "torch.npu.random")
del add_vendor_names
