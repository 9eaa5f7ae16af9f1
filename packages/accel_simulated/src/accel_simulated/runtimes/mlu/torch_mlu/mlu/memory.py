"""`torch.mlu.memory`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.mlu.memory")
del fill
