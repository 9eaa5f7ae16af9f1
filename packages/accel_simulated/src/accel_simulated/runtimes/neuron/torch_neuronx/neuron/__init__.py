"""`torch.neuron`, simulated with the names in its surface file; a test makes the calls listed there."""

from accel_simulated.parts.lifecycle import _lazy_init
from accel_simulated.surface import add_vendor_names

# torch reads `_initialized` and `_lazy_init` in every device module.
_initialized = False

add_vendor_names(globals(), "torch.neuron")
del add_vendor_names
