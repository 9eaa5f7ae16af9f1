"""`torch.supa.memory`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.supa.memory")
del fill
