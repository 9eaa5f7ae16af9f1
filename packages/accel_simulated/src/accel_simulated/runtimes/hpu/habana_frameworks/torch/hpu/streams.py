"""`torch.hpu.streams`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.hpu.streams")
del fill
