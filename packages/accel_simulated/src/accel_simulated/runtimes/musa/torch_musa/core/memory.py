"""`torch.musa.memory`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.musa.memory")
del fill
