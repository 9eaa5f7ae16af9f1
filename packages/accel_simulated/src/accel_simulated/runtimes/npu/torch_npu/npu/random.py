"""`torch.npu.random`, simulated."""

from accel_simulated.parts import lifecycle as _sim_lifecycle
from accel_simulated.shape import fill


def _lazy_call(cb):
    _sim_lifecycle._lazy_call(cb)


def get_default_generator(device_index):
    return _sim_lifecycle.generators()[device_index]


fill(globals(), "torch.npu.random")
del fill
