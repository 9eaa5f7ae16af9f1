"""A data type tried on the device, where its vendor has no word on it."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

__all__ = ["computes_in", "held_types", "scales_losses"]


def computes_in(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    """Whether a product in `dtype` comes out right on the current device, which this starts.

    An error that says nothing of the data type is given instead: the device is out of memory, or a product
    in float32 fails there as well.
    """
    answer = _product(torch, device_type, dtype)
    if isinstance(answer, bool) or _product(torch, device_type, torch.float32) is not True:
        return answer
    # The device computes: what had failed in passing succeeds now, and what fails again is the type's fault.
    answer = _product(torch, device_type, dtype)
    return answer if isinstance(answer, (bool, torch.OutOfMemoryError)) else False


def _product(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    try:
        ones = torch.ones((2, 2), dtype=dtype, device=device_type)
        return bool((ones @ ones).sum().item() == 8)
    except (RuntimeError, TypeError) as error:
        return error


def held_types(torch: Any, device: Any) -> set[Any]:
    """The data types in which a tensor of one element can be made on `device`, and converted to.

    Each is read back: a queue tells of what failed in it when it is waited for.
    """
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of types that it calls experimental
        for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
            try:
                torch.empty(1, dtype=dtype, device=device)
                torch.ones(1, device=device).to(dtype).cpu()
            except (RuntimeError, TypeError):  # a type that the device has not, or torch's own packed ones
                continue
            found.add(dtype)
    return found


def scales_losses(torch: Any, device_type: str) -> bool:
    """Whether `torch.amp.GradScaler` can divide gradients on the current device, which this starts.

    float16 without it is no training: gradients vanish.
    """
    try:
        weight = torch.ones(1, device=device_type, requires_grad=True)
        scaler = torch.amp.GradScaler(device_type, init_scale=2.0)
        scaler.scale(weight.sum()).backward()
        # In an optimizer's place: making one of torch's imports its compiler, a second or two.
        scaler.unscale_(SimpleNamespace(param_groups=[{"params": [weight]}]))
    except (NotImplementedError, TypeError):  # a kernel that the device lacks; a Metal without float64
        return False
    return bool(weight.grad.item() == 1.0)
