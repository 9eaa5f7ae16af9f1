"""`torch.neuron`, simulated with the names in its surface file; a test makes the calls listed there."""

from accel_simulated.parts.lifecycle import _lazy_init
from accel_simulated.shape import fill

# torch reads `_initialized` and `_lazy_init` in every device module.
_initialized = False

fill(globals(), "torch.neuron")
del fill
