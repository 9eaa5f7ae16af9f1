"""torch.distributed's table of communication backends: look up a device type, and add `staged`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from accel_core.torch_import import import_torch
from accel_train.staged.device import STAGED, Device

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["STAGED", "obstacle", "register", "registered_for"]


def registered_for(name: str, device_type: str) -> bool:
    """Return whether torch.distributed here has a backend of that name for tensors of that device type."""
    distributed = import_torch().distributed
    if not distributed.is_available() or not distributed.is_backend_available(name):
        return False
    # Every entry says its devices; torch's own list of gloo leaves out what its own default names (mps).
    served = distributed.Backend.backend_capability.get(name, ())
    return device_type in served


def obstacle(name: str, device_type: str) -> str:
    """Return why `init_process_group(name)` does not work for that device type, or an empty string.

    `name` is what torch accepts: `"nccl"`, or pairs, `"cpu:gloo,cuda:nccl"`.
    """
    distributed = getattr(import_torch(), "distributed", None)
    if distributed is None:
        return ""  # there is no table to look into; whoever starts a group is told by torch
    if not distributed.is_available():
        return (
            "this build of torch has no torch.distributed. Install a build that has it."
        )
    pairs = [part.strip().rpartition(":") for part in name.lower().split(",")]
    for device, _, wanted in pairs:
        if not distributed.is_backend_available(wanted):
            known = [
                b
                for b in distributed.Backend.backend_list
                if distributed.is_backend_available(b)
            ]
            return (
                f"torch.distributed has no communication backend {wanted!r} here, expected one of "
                f"{', '.join(known)}; the module that brings another must be imported first"
            )
        if device or registered_for(wanted, device_type):
            continue
        served = distributed.Backend.backend_capability.get(wanted, ())
        return (
            f"the communication backend {wanted!r} is for {' and '.join(served) or 'no device'}, not for "
            f"{device_type}. {_instead(device_type)}"
        )
    if any(device for device, _, _ in pairs) and device_type not in {
        device for device, _, _ in pairs
    }:
        return f"{name!r} names no communication backend for {device_type}. {_instead(device_type)}"
    return ""


def _instead(device_type: str) -> str:
    """The next step: a backend that serves the device."""
    capability = import_torch().distributed.Backend.backend_capability
    others = [
        name
        for name in capability
        if name != "fake" and registered_for(name, device_type)
    ]
    return f"Use {' or '.join(dict.fromkeys([*others, STAGED]))} (staged: through host memory, over gloo)."


def register(device: Device) -> None:
    """Make `torch.distributed.init_process_group("staged")` work for this device's type.

    A second call with the same device changes nothing. Does nothing in a build of torch without
    torch.distributed or without gloo.
    """
    distributed = getattr(import_torch(), "distributed", None)
    if (
        distributed is None
        or not distributed.is_available()
        or not distributed.is_gloo_available()
    ):
        return
    plugins = distributed.Backend._plugins
    known = plugins.get(STAGED.upper())
    if known is not None and known.creator_fn.args == (device,):
        return
    distributed.Backend.register_backend(
        STAGED, partial(_create, device), devices=[device.device_name(), "cpu"]
    )


def _create(
    device: Device, store: Any, rank: int, size: int, timeout: timedelta
) -> Any:
    """Create a group; torch calls this for each one."""
    from accel_train.staged.group import StagedProcessGroup

    return StagedProcessGroup(device, store, rank, size, timeout)
