"""Section of the interface: random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from accel_core.errors import InvalidDeviceError
from accel_core.interface.devices import Device, Devices

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Random(Devices):
    """The accelerator's members for random numbers. They use the generators that
    `default_generator` gets from the vendor's module.
    """

    def random(self) -> ModuleType:
        """Return the module `torch.random`."""
        return self._torch.random

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> Generator:
        """Return the generator that torch uses for random numbers on the device. `None`
        means the current device.

        The generator comes from the vendor's `default_generators`. The call may
        initialize the device. Raises `InvalidDeviceError`, a `ValueError`, if there is
        no such device.
        """
        if self.device_module is None:
            raise self._unsupported("default_generator")
        index = self._index(device_index, device)
        if not self._generators():
            self._initialize_device()
        generators = self._generators()
        # The vendor may list fewer generators than devices.
        if index >= len(generators):
            raise self._unsupported(
                "default_generator", f"torch lists no generator for device {index}"
            )
        return cast("Generator", generators[index])

    def _initialize_device(self) -> None:
        """Start the vendor's runtime."""
        for name in ("init", "_lazy_init"):
            initialize = self._vendor_attribute(name)
            if initialize:
                initialize()
                return
        # Without such a function, querying the current device starts the runtime.
        self.current_device()

    def _generators(self) -> Any:
        """Return the vendor's tuple of generators. Vendors replace the tuple when the
        device is initialized.
        """
        generators = self._vendor_attribute("default_generators")
        if generators:
            return generators
        # Habana's module has the tuple in `random`.
        random = self._vendor_attribute("random")
        return getattr(random, "default_generators", ())

    def manual_seed(self, seed: int) -> None:
        """Seed the random number generator of the current device."""
        self.default_generator(self.current_device()).manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the random number generators of all devices with the same seed."""
        for index in range(self.device_count()):
            self.default_generator(index).manual_seed(seed)

    def initial_seed(self, device_index: Device = None, device: Device = None) -> int:
        """Return the seed of the device's random number generator."""
        generator = self.default_generator(self._index(device_index, device))
        return int(generator.initial_seed())

    def get_rng_state(
        self, device_index: Device = None, device: Device = None
    ) -> Tensor:
        """Return the state of the device's random number generator, a
        `torch.ByteTensor` on the host.

        After `set_rng_state` with this state, the device draws the same sequence of
        random numbers again.
        """
        return self.default_generator(self._index(device_index, device)).get_state()

    def get_rng_state_all(self) -> list[Tensor]:
        """Return the random number generator states of all devices, by index, as
        `get_rng_state` returns them.
        """
        return [self.get_rng_state(index) for index in range(self.device_count())]

    def set_rng_state(
        self,
        new_state: Tensor,
        device_index: Device = None,
        strict: bool = True,
        device: Device = None,
    ) -> None:
        """Restore the device's random number generator to a state from `get_rng_state`.

        A state that `torch.load(..., map_location=...)` has moved to the device is
        first copied to the host. A state from another type of device has a different
        size, which raises `InvalidDeviceError`, a `ValueError`. With `strict=False`,
        such a state is turned into a seed instead. A run that is resumed on another
        type of device then draws other random numbers, but every repetition of that run
        draws the same numbers.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        # The state is copied, because the CPU's generator aborts the process for a row of
        # a tensor that holds several states (torch 2.13).
        state = new_state.cpu().clone()
        expected_size = self.get_rng_state(device_index).numel()
        if state.numel() == expected_size:
            self._restore_rng_state(state, device_index)
        elif strict:
            raise InvalidDeviceError(
                f"{self.name}: this state has {state.numel()} bytes, but a state of this "
                f"device has {expected_size}, so the state is from another type of device. "
                "Seed the device instead: set_rng_state(state, strict=False), or "
                "manual_seed(seed)"
            )
        else:
            seed = crc32(bytes(state.tolist()))
            with self.device_guard(self._index(device_index)):
                self.manual_seed(seed)

    def _restore_rng_state(self, state: Tensor, device_index: Device) -> None:
        """Set the state of the device's generator, with the vendor's function if there
        is one.
        """
        restore = self._vendor_attribute("set_rng_state")
        if restore is None:
            self.default_generator(self._index(device_index)).set_state(state)
        elif device_index is None:
            restore(state)
        else:
            restore(state, self._checked_index(device_index))

    @contextmanager
    def fork_rng(
        self, devices: Iterable[Device] | None = None, enabled: bool = True
    ) -> Iterator[None]:
        """Return a context manager that restores the random states of the host and of
        `devices` on exit. With `enabled=False`, it restores none.

        If `devices` is `None`, all devices are meant. Unlike `torch.random.fork_rng`,
        this does not warn if there are many devices.
        """
        if not enabled:
            yield
            return
        if devices is None:
            indices = list(range(self.device_count()))
        else:
            indices = [self._index(device) for device in devices]
        host_state = self._torch.get_rng_state()
        states = [self.get_rng_state(index) for index in indices]
        try:
            yield
        finally:
            self._torch.set_rng_state(host_state)
            for index, state in zip(indices, states, strict=True):
                self.set_rng_state(state, index)
