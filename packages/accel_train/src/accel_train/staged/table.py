"""Read torch.distributed's table of communication backends for a device type, and add `staged` to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from accel_core.torch_import import import_torch
from accel_train.staged.device import STAGED, Device

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["STAGED", "is_registered_for", "register", "unusable_reason"]


def is_registered_for(name: str, device_type: str) -> bool:
    """Return whether the installed torch has a communication backend `name` for the device type."""
    distributed = import_torch().distributed
    if not distributed.is_available() or not distributed.is_backend_available(name):
        return False
    # torch's mapping from device to backend is not used: it names gloo for mps, which gloo does not support.
    device_types = distributed.Backend.backend_capability.get(name, ())
    return device_type in device_types


def unusable_reason(name: str, device_type: str) -> str:
    """Return why `init_process_group(name)` does not work for the device type.

    Returns an empty string if it works. `name` is a backend such as `"nccl"`, or pairs of a device and a
    backend, such as `"cpu:gloo,cuda:nccl"`.
    """
    distributed = getattr(import_torch(), "distributed", None)
    if distributed is None:
        return ""  # torch raises an error when a group is started.
    if not distributed.is_available():
        return (
            "this build of torch has no torch.distributed. Install a build that has it."
        )
    named_devices = set()
    # `name` is one backend, or a list of pairs such as "cpu:gloo,cuda:nccl".
    for pair in name.lower().split(","):
        device, _, backend = pair.strip().rpartition(":")
        if device:
            named_devices.add(device)
            reason = _unusable_backend_reason(backend, device_type=None)
        else:
            reason = _unusable_backend_reason(backend, device_type)
        if reason:
            return reason
    if named_devices and device_type not in named_devices:
        return (
            f"{name!r} does not name a communication backend for {device_type}. "
            f"{_usable_backends_sentence(device_type)}"
        )
    return ""


def _unusable_backend_reason(backend: str, device_type: str | None) -> str:
    """Return why the communication backend cannot be used for `device_type`.

    Returns an empty string if it can be used. `device_type` is `None` if the program names the device
    together with the backend.
    """
    distributed = import_torch().distributed
    if not distributed.is_backend_available(backend):
        available = []
        for name in distributed.Backend.backend_list:
            if distributed.is_backend_available(name):
                available.append(name)
        return (
            f"torch.distributed has no communication backend {backend!r} in this process, expected one of "
            f"{', '.join(available)}. Next step: import the package that provides {backend!r}, if there is "
            "such a package"
        )
    if device_type is None or is_registered_for(backend, device_type):
        return ""
    device_types = distributed.Backend.backend_capability.get(backend, ())
    supported_types = " and ".join(device_types) or "no device"
    return (
        f"the communication backend {backend!r} is for {supported_types}, not for {device_type}. "
        f"{_usable_backends_sentence(device_type)}"
    )


def _usable_backends_sentence(device_type: str) -> str:
    """Return the sentence that names the communication backends to use for the device type."""
    capability = import_torch().distributed.Backend.backend_capability
    backends = []
    for name in capability:
        is_for_tests = name == "fake"
        if is_registered_for(name, device_type) and not is_for_tests:
            backends.append(name)
    if STAGED not in backends:
        backends.append(STAGED)
    names = " or ".join(backends)
    return f"Next step: use {names}. The backend staged runs gloo on copies in host memory."


def register(device: Device) -> None:
    """Make `torch.distributed.init_process_group("staged")` work for the type of `device`.

    A second call with the same device changes nothing. If torch was built without torch.distributed or
    without gloo, the function does nothing.
    """
    distributed = getattr(import_torch(), "distributed", None)
    if distributed is None or not distributed.is_available():
        return
    if not distributed.is_gloo_available():
        return
    plugin = distributed.Backend._plugins.get(STAGED.upper())
    if plugin is not None:
        # `creator_fn` is the partial function `create_group` of an earlier call, with that call's device.
        registered_arguments = plugin.creator_fn.args
        if registered_arguments == (device,):
            return
    create_group = partial(_create_group, device)
    distributed.Backend.register_backend(
        STAGED, create_group, devices=[device.device_name(), "cpu"]
    )


def _create_group(
    device: Device, store: Any, rank: int, size: int, timeout: timedelta
) -> Any:
    """Create a `StagedProcessGroup`. torch calls this function for each new group."""
    from accel_train.staged.group import StagedProcessGroup

    return StagedProcessGroup(device, store, rank, size, timeout)
