"""`torch.hpu.events`, simulated."""

from accel_simulated.parts.streams import Event as _sim_Event
from accel_simulated.shape import fill


class Event(_sim_Event):
    def __new__(cls, enable_timing=False):
        return super().__new__(cls, enable_timing)


fill(globals(), "torch.hpu.events")
del fill
