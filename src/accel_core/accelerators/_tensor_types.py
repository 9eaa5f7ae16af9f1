"""`FloatTensor` and its like: torch's old tensor types, for a device that has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["TensorType"]


class TensorType:
    """What stands for `torch.<device>.FloatTensor`: called with data or sizes, and a kind for `isinstance`.

    `FloatTensor([1, 2])` holds these values, `FloatTensor()` nothing, and `FloatTensor(2, 3)` or a
    `torch.Size` makes an uninitialised tensor, as torch's types do. A single whole number is a `TypeError`:
    torch's type takes it for a size, and `torch.tensor`, which stands in the place of most vendors'
    types, for a value. Keywords are those of `torch.tensor`. The tensor is on the device that is current when
    this is called.

    `refuse` raises where the device cannot hold the type; then nothing is an instance either.
    """

    __slots__ = ("_device_type", "_name", "_refuse", "_torch", "dtype")

    def __init__(
        self, torch: Any, name: str, dtype: Any, device_type: str, refuse: Callable[[], Any] | None = None
    ) -> None:
        self._torch = torch
        self._name = name
        self._device_type = device_type
        self._refuse = refuse
        #: The data type of the tensors.
        self.dtype = dtype

    def __call__(self, *data: Any, **options: Any) -> Any:
        if self._refuse is not None:
            self._refuse()
        torch = self._torch
        options = {"dtype": self.dtype, "device": self._device_type, **options}
        if not data and "data" not in options:
            return torch.empty(0, **options)
        if len(data) > 1 or (data and isinstance(data[0], torch.Size)):
            return torch.empty(*data, **options)
        if data and isinstance(data[0], int) and not isinstance(data[0], bool):
            number, place = data[0], f"device={self._device_type!r}"
            raise TypeError(
                f"{self!r}({number}) could mean one value or {number} elements: write "
                f"{self._name}([{number}]) for the value, "
                f"torch.empty({number}, dtype={self.dtype}, {place}) for the elements"
            )
        return torch.tensor(*data, **options)

    def __instancecheck__(self, tensor: object) -> bool:
        return (
            isinstance(tensor, self._torch.Tensor)
            and tensor.dtype == self.dtype
            and tensor.device.type == self._device_type
        )

    def __repr__(self) -> str:
        return f"{self._device_type}.{self._name}"
