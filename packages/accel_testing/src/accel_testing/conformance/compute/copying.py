"""Copy arguments to a device, and keep their memory layout and the storages that they share."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DeviceCopier", "find_tensors"]


class DeviceCopier:
    """A copier of arguments to a device, which keeps memory layouts and shared storages.

    A strided tensor is copied with its whole storage, so that strides, offsets and overlaps are kept. Tensors
    that share a storage also share a storage on the device. A tensor that requires a gradient becomes a leaf
    tensor that requires a gradient.
    """

    def __init__(self, device: torch.device | str, *, gradients: bool = True) -> None:
        self._device = device
        self._gradients = gradients
        self._storages: dict[int, torch.Tensor] = {}
        self._copies: dict[int, torch.Tensor] = {}

    @property
    def storages(self) -> list[torch.Tensor]:
        """The complete storages of the copied tensors, in the order of the arguments."""
        return list(self._storages.values())

    def __call__(self, value: Any) -> Any:
        """Return `value` with each tensor at any depth copied, and each `device="cpu"` replaced."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._copies:
                self._copies[id(value)] = self._copy(value)
            return self._copies[id(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        return self._replace_cpu(value)

    def _replace_cpu(self, value: Any) -> Any:
        """Return the device if `value` is the CPU, as text or `torch.device`; otherwise `value`."""
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self._device)
        if isinstance(value, str) and value == "cpu":
            return self._device
        return value

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of the tensor on the device, which requires a gradient if the tensor does."""
        with torch.no_grad():
            if tensor.layout == torch.strided:
                copied = self._copy_strided(tensor)
            else:
                copied = tensor.detach().clone().to(self._device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(copied, requires_grad=tensor.requires_grad)
        return copied.requires_grad_(tensor.requires_grad and self._gradients)

    def _copy_strided(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a view of the copied storage with the tensor's shape, strides and offset."""
        plain = tensor.detach()
        is_conjugate, is_negative = plain.is_conj(), plain.is_neg()
        if is_conjugate:
            plain = plain.conj()
        if is_negative:
            plain = torch._neg_view(plain)
        copied = torch.as_strided(
            self._copy_storage(plain, id(tensor)),
            plain.shape,
            plain.stride(),
            int(plain.storage_offset()),
        ).detach()
        if is_conjugate:
            copied = copied.conj()
        return torch._neg_view(copied) if is_negative else copied

    def _copy_storage(self, tensor: torch.Tensor, identity: int) -> torch.Tensor:
        """Return a flat copy of the tensor's storage; tensors that share a storage get the same copy.

        An empty storage has no address, so `identity` then identifies the tensor.
        """
        storage = tensor.untyped_storage()
        key = hash((storage.data_ptr() or identity, tensor.dtype))
        if key not in self._storages:
            elements = storage.nbytes() // tensor.element_size()
            flat = torch.empty(0, dtype=tensor.dtype).set_(
                storage, 0, (elements,), (1,)
            )
            room = torch.empty(elements, dtype=tensor.dtype, device=self._device)
            self._storages[key] = room.copy_(flat)
        return self._storages[key]


def find_tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in `value`, at any nesting depth, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in find_tensors(item)]
    return []
