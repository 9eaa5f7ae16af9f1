"""`torch.npu.streams`, simulated."""

from accel_simulated.shape import fill

fill(globals(), "torch.npu.streams")
del fill
