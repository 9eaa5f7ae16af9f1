"""`NeuronAccelerator`: the members that torch.neuron needs to override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from accel_core import TorchAccelerator, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator, Tensor
    from torch.types import Device

__all__ = ["NeuronAccelerator"]


class StateGenerator:
    """The random state of one device, with the methods of `torch.Generator`."""

    def __init__(self, accelerator: NeuronAccelerator, index: int) -> None:
        self._accelerator, self._index = accelerator, index
        self.device = accelerator.device(index)

    def get_state(self) -> Tensor:
        """Return the state, a `torch.ByteTensor` on the host."""
        return self._accelerator.get_rng_state(self._index)

    def set_state(self, new_state: Tensor) -> StateGenerator:
        """Restore a state from `get_state`."""
        self._accelerator.set_rng_state(new_state, self._index)
        return self

    def manual_seed(self, seed: int) -> StateGenerator:
        """Seed the device."""
        with self._accelerator.device_guard(self._index):
            self._accelerator.manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        """Return the device's seed. Raises `UnsupportedError` if torch.neuron has no
        function `initial_seed`.
        """
        query = self._accelerator._required("initial_seed")
        with self._accelerator.device_guard(self._index):
            return int(query())


class NeuronAccelerator(TorchAccelerator):
    """AWS Trainium. A device is a logical NeuronCore.

    TorchNeuron's source was not available, so every function is looked up before it is
    used. If TorchNeuron lacks a function, the function of torch.accelerator is used, or
    otherwise the member raises `UnsupportedError` with the member's name.

    Members for random states call the functions that Accelerate (1.15.0) calls, on the
    current device, because no known framework uses generators of torch.neuron.
    """

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> Generator:
        """Return the device's generator. If torch.neuron lists none, return a
        `StateGenerator`: it reads, restores and seeds the state, but torch cannot draw
        random numbers from it.
        """
        index = self._index(device_index, device)
        try:
            return super().default_generator(index)
        except UnsupportedError:
            return cast("Generator", StateGenerator(self, index))

    def is_fp64_supported(self) -> bool:
        """Return False: diffusers (0.42.1, utils/torch_utils.py) lists neuron among the
        devices without float64.
        """
        return False

    def manual_seed(self, seed: int) -> None:
        """Seed the current device; the random states of other devices do not change."""
        if self._vendor_attribute("manual_seed") is not None:
            super().manual_seed(seed)
            return
        current = self.current_device()
        others = [index for index in range(self.device_count()) if index != current]
        states = [self.get_rng_state(index) for index in others]
        self.manual_seed_all(seed)
        for index, state in zip(others, states, strict=True):
            self._restore_rng_state(state, index)

    def get_rng_state(
        self, device_index: Device = None, device: Device = None
    ) -> Tensor:
        """Return the state of the device's generator, a `torch.ByteTensor` on the
        host.
        """
        read = self._required("get_rng_state")
        with self.device_guard(self._index(device_index, device)):
            state: Tensor = read()
        return state

    def _restore_rng_state(self, state: Tensor, device_index: Device) -> None:
        restore = self._required("set_rng_state")
        with self.device_guard(self._index(device_index)):
            restore(state)

    def _required(self, name: str) -> Callable[..., Any]:
        """Return the function of torch.neuron called `name`. Raises `UnsupportedError`
        if there is none.
        """
        function = self._vendor_attribute(name)
        if function is None:
            raise self._unsupported(name)
        return cast("Callable[..., Any]", function)
