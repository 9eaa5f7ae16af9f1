"""`torch.supa.brtx`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.supa.brtx")
del add_vendor_names
