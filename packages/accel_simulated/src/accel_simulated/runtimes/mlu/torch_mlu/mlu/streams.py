"""`torch.mlu.streams`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.mlu.streams")
del add_vendor_names
