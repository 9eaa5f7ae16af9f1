"""`torch.mlu.cnpx`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.mlu.cnpx")
del fill
