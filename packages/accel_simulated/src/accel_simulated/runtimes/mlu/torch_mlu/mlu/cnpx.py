"""`torch.mlu.cnpx`, simulated."""

from accel_simulated.surface import add_vendor_names

add_vendor_names(globals(), "torch.mlu.cnpx")
del add_vendor_names
