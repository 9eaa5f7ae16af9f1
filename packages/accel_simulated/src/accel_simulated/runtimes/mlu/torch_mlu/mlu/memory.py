"""`torch.mlu.memory`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.mlu.memory")
del add_vendor_names
