"""`torch.mlu.random`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.mlu.random")
del add_vendor_names
