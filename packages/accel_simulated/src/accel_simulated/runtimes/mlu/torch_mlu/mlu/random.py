"""`torch.mlu.random`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.mlu.random")
del fill
