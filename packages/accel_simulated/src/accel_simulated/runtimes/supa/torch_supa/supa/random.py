"""`torch.supa.random`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.supa.random")
del fill
