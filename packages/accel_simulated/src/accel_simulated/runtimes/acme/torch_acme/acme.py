"""`torch.acme`: the functions that frameworks call in a GPU's device module, with torch.cuda's names."""

from accel_simulated.parts.devices import (
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    set_device,
    synchronize,
)
from accel_simulated.parts.dtypes import get_amp_supported_dtype, is_bf16_supported
from accel_simulated.parts.lifecycle import (
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    init,
    is_available,
    is_initialized,
)
from accel_simulated.parts.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from accel_simulated.parts.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from accel_simulated.parts.streams import (
    Event,
    Stream,
    StreamContext,
    _sleep,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

_initialized = False
default_generators = ()  # filled when the runtime starts
