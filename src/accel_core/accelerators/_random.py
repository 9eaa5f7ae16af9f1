"""Section of the interface: random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from accel_core.accelerators._devices import Devices

if TYPE_CHECKING:
    import torch

__all__ = ["Random"]


class Random(Devices):
    """Random numbers: everything follows from `default_generator`."""

    def random(self) -> ModuleType:
        """The random module, `torch.random`."""
        module: ModuleType = self._torch.random
        return module

    def default_generator(self, device_index: int | None) -> torch.Generator:
        """The generator that torch draws from on that device, also before the device is initialised.

        `None` means the current device.
        """
        raise self._unsupported("default_generator")

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of the current device."""
        self.default_generator(self.current_device()).manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices alike."""
        for index in range(self.device_count()):
            self.default_generator(index).manual_seed(seed)

    def initial_seed(self) -> int:
        """The seed that the current device's generator was started with."""
        return int(self.default_generator(self.current_device()).initial_seed())

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """State of the device's generator, a `torch.ByteTensor` on the host.

        Given back to `set_rng_state` it restores the stream of numbers bit for bit.
        """
        return self.default_generator(self._index(device_index)).get_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Restore the device's generator to a state from `get_rng_state`."""
        self.default_generator(self._index(device_index)).set_state(new_state)

    @contextmanager
    def fork_rng(self, devices: Iterable[int] | None = None) -> Iterator[None]:
        """A context manager that restores the generators of the host and of `devices` when it ends.

        `None` means all devices. Unlike `torch.random.fork_rng` it does not warn when there are many.
        """
        torch = self._torch
        indices = list(range(self.device_count()) if devices is None else devices)
        host = torch.get_rng_state()
        states = [self.get_rng_state(index) for index in indices]
        try:
            yield
        finally:
            torch.set_rng_state(host)
            for index, state in zip(indices, states, strict=True):
                self.set_rng_state(state, index)
