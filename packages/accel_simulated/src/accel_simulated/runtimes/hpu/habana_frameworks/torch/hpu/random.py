"""`torch.hpu.random`, simulated with one generator, which belongs to device 0."""

from accel_simulated.parts import random as _sim_random
from accel_simulated.parts.devices import _get_device_index
from accel_simulated.parts.lifecycle import cached_generators as _sim_generators
from accel_simulated.surface import add_vendor_names


def __getattr__(name):
    # The generators are not created at import, because counting the devices starts the runtime.
    if name == "default_generators":
        return list(_sim_generators()[:1])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _sim_require_device_0(device):
    if _get_device_index(device, optional=True) != 0:
        raise ValueError("only device 0 has a random number state")
    return 0


def get_rng_state(device="hpu"):
    return _sim_random.get_rng_state(_sim_require_device_0(device))


def get_rng_state_all():
    return [get_rng_state(0)]


def set_rng_state(new_state, device="hpu"):
    _sim_random.set_rng_state(new_state, _sim_require_device_0(device))


def set_rng_state_all(new_states):
    for state in new_states:
        set_rng_state(state, 0)


add_vendor_names(globals(), "torch.hpu.random")
del add_vendor_names
