"""`torch.neuron`, simulated. Its names are those of its surface file; a test makes the calls seen there."""

from accel_simulated.parts.lifecycle import _lazy_init
from accel_simulated.shape import fill

# torch asks every device module for these two.
_initialized = False

fill(globals(), "torch.neuron")
del fill
