"""`torch.hpu.events`, simulated."""

from accel_simulated.parts.streams import Event as _sim_Event
from accel_simulated.surface import add_vendor_names


class Event(_sim_Event):
    def __new__(cls, enable_timing=False):
        return super().__new__(cls, enable_timing)


add_vendor_names(globals(), "torch.hpu.events")
del add_vendor_names
