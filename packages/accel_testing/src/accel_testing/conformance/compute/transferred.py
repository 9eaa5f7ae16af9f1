"""The same arguments again, on a device: same layout in memory, same views of the same storage."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Transfer", "leaves"]


class Transfer:
    """Copies arguments to a device; tensors that share a storage share one there too.

    A strided tensor's whole storage goes, and the same view of it is made, so that strides, offsets and
    overlaps are as they were. A tensor that requires a gradient becomes a leaf that does.
    """

    def __init__(self, device: torch.device | str, *, gradients: bool = True) -> None:
        self._device = device
        self._gradients = gradients
        self._storages: dict[int, torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}

    @property
    def storages(self) -> list[torch.Tensor]:
        """The whole memory of what was copied, in the order of the arguments."""
        return list(self._storages.values())

    def __call__(self, value: Any) -> Any:
        """Return `value` with each tensor in it, at any depth, copied; and `device="cpu"` replaced."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._made:
                self._made[id(value)] = self._tensor(value)
            return self._made[id(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(each) for key, each in value.items()}
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self._device)
        return self._device if isinstance(value, str) and value == "cpu" else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            made = (
                self._strided(tensor)
                if tensor.layout == torch.strided
                else tensor.detach().clone()
            )
            if tensor.layout != torch.strided:
                made = made.to(self._device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad and self._gradients)

    def _strided(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        conjugate, negative = plain.is_conj(), plain.is_neg()
        if conjugate:
            plain = plain.conj()
        if negative:
            plain = torch._neg_view(plain)
        storage = plain.untyped_storage()
        key = hash((storage.data_ptr() or id(tensor), plain.dtype))
        if key not in self._storages:
            elements = storage.nbytes() // plain.element_size()
            flat = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (elements,), (1,))
            self._storages[key] = torch.empty(
                elements, dtype=plain.dtype, device=self._device
            ).copy_(flat)
        shape, strides, offset = (
            plain.shape,
            plain.stride(),
            int(plain.storage_offset()),
        )
        made = torch.as_strided(self._storages[key], shape, strides, offset).detach()
        if conjugate:
            made = made.conj()
        return torch._neg_view(made) if negative else made


def leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors in `value`, at any depth, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in leaves(each)]
    return []
