"""`torch.supa.streams`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.supa.streams")
del add_vendor_names
