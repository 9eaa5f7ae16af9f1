"""Random numbers, drawn from a separate generator for each device.

A seed that is set before the runtime has started takes effect when the runtime starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import _get_device_index
from accel_simulated.parts.lifecycle import (
    _lazy_call,
    _lazy_init,
    cached_generators,
    is_initialized,
)

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed",
    "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip

NAME = simulated.vendor.name


def _generator(device: Any) -> torch.Generator:
    """Return the default generator of a device, where `None` means the current device."""
    _lazy_init()
    return cached_generators()[_get_device_index(device, optional=True)]


def get_rng_state(device: Any = NAME) -> torch.Tensor:
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(simulated.count)]


def set_rng_state(new_state: torch.Tensor, device: Any = NAME) -> None:
    # Before the runtime starts, the call is deferred, so the state is copied in case the caller changes it.
    # Afterwards, the call is immediate, and a copy would fail in torch's FakeTensorMode.
    state = new_state if is_initialized() else new_state.clone()
    _lazy_call(lambda: _generator(device).set_state(state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    _lazy_call(lambda: _generator(None).manual_seed(int(seed)))


def manual_seed_all(seed: int) -> None:
    _lazy_call(
        lambda: [generator.manual_seed(int(seed)) for generator in cached_generators()]
    )


def seed() -> None:
    _lazy_call(lambda: _generator(None).seed())


def seed_all() -> None:
    _lazy_call(lambda: manual_seed_all(_generator(0).seed()))


def initial_seed() -> int:
    return _generator(None).initial_seed()
