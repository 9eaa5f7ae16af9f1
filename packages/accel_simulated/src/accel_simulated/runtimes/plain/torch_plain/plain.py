"""`torch.plain`: the functions that PyTorch calls in a device module, and the generators."""

from accel_simulated.parts.devices import current_device, device, device_count
from accel_simulated.parts.dtypes import get_amp_supported_dtype
from accel_simulated.parts.lifecycle import _is_in_bad_fork, _lazy_init, is_available
from accel_simulated.parts.random import get_rng_state, manual_seed_all, set_rng_state

_initialized = False
default_generators = ()  # filled when the runtime starts
