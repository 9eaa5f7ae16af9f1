"""`torch.hpu`, simulated with the names in its surface file; a test compares the parameters."""

from habana_frameworks.torch.hpu import events, memory, random, streams
from habana_frameworks.torch.hpu._sim_mode import is_lazy
from habana_frameworks.torch.hpu.events import Event
from habana_frameworks.torch.hpu.memory import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from habana_frameworks.torch.hpu.random import (
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

from accel_simulated.parts import devices as _sim_devices
from accel_simulated.surface import add_vendor_names

_initialized = False
is_lazy_mode = is_lazy()
if is_lazy_mode:
    from habana_frameworks.torch.hpu import graphs
    from habana_frameworks.torch.hpu.graphs import HPUGraph, graph


def synchronize():
    _sim_devices.synchronize()


add_vendor_names(
    globals(), "torch.hpu", false_conditions=() if is_lazy_mode else ("is_lazy()",)
)
del add_vendor_names
