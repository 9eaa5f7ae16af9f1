"""`torch.supa.streams`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.supa.streams")
del fill
