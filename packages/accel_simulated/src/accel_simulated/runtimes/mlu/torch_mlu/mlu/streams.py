"""`torch.mlu.streams`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.mlu.streams")
del fill
