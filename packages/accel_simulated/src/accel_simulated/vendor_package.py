"""Register a simulated device with torch, as importing the vendor's real package would."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from accel_simulated import device

__all__ = ["finish", "not_simulated", "start"]


def start(name: str) -> None:
    """Load the device; a vendor's package calls this first, because importing `parts` needs the name."""
    device.start(name)


def finish(module: ModuleType) -> None:
    """Register `module` as `torch.<name>`, and register the device with torch's Python code.

    The Python code consists of the methods of tensors and storages, inductor, checkpointing, and
    torch.distributed.
    """
    import torch
    from torch.utils.checkpoint import DefaultDeviceType

    from accel_simulated import collective, data_parallel, inductor, sending

    name, vendor = device.vendor.name, device.vendor
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    if vendor.kind == "PrivateUse1":
        generate_methods = (
            torch.utils.backend_registration.generate_methods_for_privateuse1_backend
        )
        # For a device type built into torch, such as vulkan, torch.Tensor already has `is_vulkan`, and torch
        # rejects new methods.
        is_new = not hasattr(torch.Tensor, f"is_{name}")
        generate_methods(
            for_tensor=is_new,
            for_module=is_new,
            for_packed_sequence=is_new,
            for_storage=True,
        )
        if not vendor.plain:
            inductor.register(name)
    DefaultDeviceType.set_device_type(name)
    sending.forbid_sharing(torch.UntypedStorage, name)
    for function, refusal in data_parallel.refusals(name).items():
        setattr(torch._C, function, refusal)
    if vendor.collective and torch.distributed.is_available():
        collective.register(vendor.collective, name)


def not_simulated(package: str, *names: str) -> dict[str, Callable[..., Any]]:
    """Return a function that raises `UnsupportedError` for each of the vendor's operators in `names`.

    Frameworks import these operators by name if the vendor's package is installed, although most programs
    never call them.
    """
    return {name: _unsupported(package, name) for name in names}


def _unsupported(package: str, name: str) -> Callable[..., Any]:
    """Return a function called `name` that raises `UnsupportedError`."""

    def unsupported(*arguments: Any, **options: Any) -> Any:
        from accel_core import UnsupportedError

        raise UnsupportedError(
            f"{package}.{name} is not simulated, because it is one of the vendor's kernels. Choose the "
            "framework's implementation with torch's operators, or run this on the vendor's device."
        )

    unsupported.__name__ = unsupported.__qualname__ = name
    return unsupported
