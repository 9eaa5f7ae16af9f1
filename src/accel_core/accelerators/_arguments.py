"""What a caller may name a device by, when it is not a plain index; loaded when somebody does."""

from __future__ import annotations

import operator
from typing import Any

from accel_core.errors import InvalidArgumentError, InvalidDeviceError

__all__ = ["device_number"]


def device_number(torch: Any, name: str, device_type: str, device: Any) -> int | None:
    """The index that `device` names on the accelerator `name`; `None` where it names a type alone (`"npu"`).

    The range is not asked. Raises `InvalidDeviceError` for another accelerator's device and for a string that
    names none, and `InvalidArgumentError` for what is neither an index, a string nor a `torch.device`.
    """
    expected = f"expected an index, a string such as '{device_type}:0' or a torch.device of that type"
    if isinstance(device, str):
        if device.isdecimal():  # so a launched rank's device is named: os.environ["LOCAL_RANK"]
            return int(device)
        try:
            device = torch.device(device)
        except RuntimeError:
            raise InvalidDeviceError(f"{name}: {device!r} is not a device: {expected}") from None
    if isinstance(device, torch.device):
        if device.type != device_type:
            raise InvalidDeviceError(f"{name}: {device} is not a device of type {device_type!r}: {expected}")
        index: int | None = device.index
        return index
    try:
        return operator.index(device)
    except TypeError:
        raise InvalidArgumentError(
            f"{name}: {device!r} ({type(device).__name__}) is not a device: {expected}"
        ) from None
