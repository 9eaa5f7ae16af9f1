"""A data type tried on the device, where its vendor has no word on it."""

from __future__ import annotations

from typing import Any

__all__ = ["computes_in"]


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
