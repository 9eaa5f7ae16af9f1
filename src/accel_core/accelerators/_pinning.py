"""Section of the interface: page-locked host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel_core.accelerators._memory import Memory

if TYPE_CHECKING:
    import torch

__all__ = ["Pinning"]


class Pinning(Memory):
    """Page-locked host memory, from which a copy to the device can run beside other work.

    Everything follows from `_torch_pin_memory`, `_torch_empty_pinned` and `_torch_is_pinned`, which
    have the names and parameters of DeepSpeed's hooks. None passes a device: torch deprecated that.
    """

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor."""
        return tensor.pin_memory()

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """An uninitialised page-locked tensor of that shape and of `tensor`'s data type."""
        return tensor.new_empty(shape, pin_memory=True)

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked."""
        return bool(tensor.is_pinned())

    def pin_memory(
        self, tensor: torch.Tensor, make_copy: bool = True, match_shape: bool = True
    ) -> torch.Tensor:
        """Page-locked host memory for `tensor`.

        With `make_copy` it holds the tensor's values. Without, the tensor is only a template: the
        memory is uninitialised, and `match_shape=False` makes it one-dimensional.
        """
        if make_copy:
            return self._torch_pin_memory(tensor)
        return self._torch_empty_pinned(tensor, tuple(tensor.shape) if match_shape else (tensor.numel(),))

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
        """An uninitialised page-locked host tensor.

        The size comes as in `torch.empty`: numbers, or one sequence. Raises `ValueError` when
        `device` is not the CPU.
        """
        self._require_host(device)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        return self._torch_empty_pinned(self._torch.empty(0, dtype=dtype, device="cpu"), shape)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """An uninitialised page-locked host tensor of `tensor`'s shape, and its data type unless given.

        Raises `ValueError` when `device` is not the CPU.
        """
        return self.pin_empty(
            tuple(tensor.shape), dtype=tensor.dtype if dtype is None else dtype, device=device
        )

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked."""
        return self._torch_is_pinned(tensor)

    def unpin_memory(self, tensor: torch.Tensor) -> None:
        """Nothing: torch unlocks the memory when its last tensor goes."""

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock `num_bytes` of host memory at `address`; False where the runtime cannot."""
        return False

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`."""

    def pin_memory_alignment(self) -> int:
        """Bytes to which `register_host_memory` needs its address aligned; 1 when it does not matter."""
        return 1

    def _require_host(self, device: Any) -> None:
        try:
            on_host = self._torch.device(device).type == "cpu"
        except RuntimeError:
            on_host = False
        if not on_host:
            raise ValueError(f"page-locked memory is host memory: device must be 'cpu', not {device!r}")
