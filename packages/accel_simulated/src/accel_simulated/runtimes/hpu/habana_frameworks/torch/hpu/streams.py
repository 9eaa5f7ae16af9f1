"""`torch.hpu.streams`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.hpu.streams")
del add_vendor_names
