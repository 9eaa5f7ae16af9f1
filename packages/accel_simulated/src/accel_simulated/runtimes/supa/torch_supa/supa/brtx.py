"""`torch.supa.brtx`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.supa.brtx")
del fill
