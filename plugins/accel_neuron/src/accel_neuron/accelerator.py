"""`NeuronAccelerator`: the members to override for torch.neuron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from accel_core import TorchAccelerator, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator, Tensor
    from torch.types import Device

__all__ = ["NeuronAccelerator"]


class StateGenerator:
    """A replacement for the `torch.Generator` of a device whose vendor offers none.

    The object reads, restores and seeds the device's random state.
    """

    def __init__(self, accelerator: NeuronAccelerator, index: int) -> None:
        self._accelerator, self._index = accelerator, index
        self.device = accelerator.device(index)

    def get_state(self) -> Tensor:
        """Return the device's random state, a `torch.ByteTensor` on the host."""
        return self._accelerator.get_rng_state(self._index)

    def set_state(self, new_state: Tensor) -> StateGenerator:
        """Restore a state that `get_state` returned, and return this object."""
        self._accelerator.set_rng_state(new_state, self._index)
        return self

    def manual_seed(self, seed: int) -> StateGenerator:
        """Seed the device's random number generator, and return this object."""
        with self._accelerator.device_guard(self._index):
            self._accelerator.manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        """Return the seed of the device's random number generator.

        Raises `UnsupportedError` if torch.neuron has no function `initial_seed`.
        """
        get_initial_seed = self._accelerator._require_function("initial_seed")
        with self._accelerator.device_guard(self._index):
            return int(get_initial_seed())


class NeuronAccelerator(TorchAccelerator):
    """The accelerator for AWS Trainium. A device is a logical NeuronCore.

    TorchNeuron's source was not available, so every function is looked up before it is
    called. If TorchNeuron lacks the function, the member of this class calls the
    function of torch.accelerator, or raises `UnsupportedError`.

    Members for random states call the functions of torch.neuron that Accelerate
    (1.15.0) calls. No known framework uses generators of torch.neuron.
    """

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> Generator:
        """Return the device's default random number generator.

        If torch.neuron has no generators, the result is a `StateGenerator`. That object
        reads, restores and seeds the device's random state, but torch cannot draw
        random numbers from it.
        """
        index = self._index(device_index, device)
        try:
            return super().default_generator(index)
        except UnsupportedError:
            return cast("Generator", StateGenerator(self, index))

    def is_fp64_supported(self) -> bool:
        """Return False: diffusers treats neuron as a device without float64.

        Source: diffusers 0.42.1, utils/torch_utils.py.
        """
        return False

    def manual_seed(self, seed: int) -> None:
        """Seed the current device. The random states of other devices do not change."""
        if self._vendor_attribute("manual_seed") is not None:
            super().manual_seed(seed)
            return
        # This TorchNeuron can only seed all devices, so the states of other devices are
        # restored.
        current = self.current_device()
        other_states = {
            index: self.get_rng_state(index)
            for index in range(self.device_count())
            if index != current
        }
        self.manual_seed_all(seed)
        for index, state in other_states.items():
            self._restore_rng_state(state, index)

    def get_rng_state(
        self, device_index: Device = None, device: Device = None
    ) -> Tensor:
        """Return the device's random state, a `torch.ByteTensor` on the host."""
        get_state = self._require_function("get_rng_state")
        # The vendor's function returns the state of the current device.
        with self.device_guard(self._index(device_index, device)):
            state: Tensor = get_state()
        return state

    def _restore_rng_state(self, state: Tensor, device_index: Device) -> None:
        set_state = self._require_function("set_rng_state")
        # The vendor's function sets the state of the current device.
        with self.device_guard(self._index(device_index)):
            set_state(state)

    def _require_function(self, name: str) -> Callable[..., Any]:
        """Return the function `name` of torch.neuron.

        Raises `UnsupportedError` if torch.neuron has no such function.
        """
        function = self._vendor_attribute(name)
        if function is None:
            raise self._unsupported(name)
        return cast("Callable[..., Any]", function)
