"""`NeuronAccelerator`: what differs on torch.neuron from any other device module of
torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from accel_core import TorchAccelerator, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator, Tensor
    from torch.types import Device

__all__ = ["NeuronAccelerator"]


class StateGenerator:
    """A device's random state under the names of `torch.Generator`."""

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
        """Return the device's seed; raises `UnsupportedError` if torch.neuron has no
        such function.
        """
        query = self._accelerator._required("initial_seed")
        with self._accelerator.device_guard(self._index):
            return int(query())


class NeuronAccelerator(TorchAccelerator):
    """AWS Trainium; a device is a logical NeuronCore.

    The source of TorchNeuron was not at hand, so every function is looked up before it
    is used. If TorchNeuron lacks one, torch.accelerator's serves, or the member raises
    `UnsupportedError` with its name.

    Random states go through the functions that Accelerate (1.15.0) calls, each of the
    current device: no framework was seen to use generators of torch.neuron.
    """

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> Generator:
        """Return the generator of that device; if torch.neuron lists none, a
        `StateGenerator`, which reads, restores and seeds its state, and from which
        torch cannot draw.
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
        """Seed the generator of the current device; the states of the other devices
        stay as they are.
        """
        if self._lookup("manual_seed") is not None:
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
        """Return torch.neuron's function; raises `UnsupportedError` if it lacks one of
        that name.
        """
        function = self._lookup(name)
        if function is None:
            raise self._unsupported(name)
        return cast("Callable[..., Any]", function)
