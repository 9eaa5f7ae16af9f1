"""Register a simulated device with torch, as the import of the vendor's real package would."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from accel_simulated import device

__all__ = ["load_device", "register_module", "unsupported_operators"]


def load_device(name: str) -> None:
    """Load the simulated device's library, and give the device its name in torch.

    A vendor's simulated package calls this function before it imports modules in `parts`, which need the
    name.
    """
    device.start(name)


def register_module(module: ModuleType) -> None:
    """Make `module` available as `torch.<name>`, and register the simulated device in torch's Python code.

    The device is then supported by torch's tensor and storage methods and checkpointing, and, if the vendor
    supports them, by inductor and torch.distributed.
    """
    import torch
    from torch.utils.checkpoint import DefaultDeviceType

    from accel_simulated import collective, data_parallel, inductor, sending

    vendor = device.vendor
    torch._register_device_module(vendor.name, module)  # type: ignore[no-untyped-call]
    if vendor.kind == "PrivateUse1":
        _add_device_methods(vendor.name)
        if not vendor.plain:
            inductor.register(vendor.name)
    DefaultDeviceType.set_device_type(vendor.name)
    sending.forbid_sharing(torch.UntypedStorage, vendor.name)
    unsupported = data_parallel.unsupported_functions(vendor.name)
    for function_name, function in unsupported.items():
        setattr(torch._C, function_name, function)
    if vendor.collective and torch.distributed.is_available():
        collective.register(vendor.collective, vendor.name)


def _add_device_methods(name: str) -> None:
    """Add methods such as `Tensor.npu()` and `Tensor.is_npu` to torch's classes."""
    import torch
    from torch.utils import backend_registration

    # torch.Tensor already has methods for device types that are built into torch, such as `is_vulkan`, and
    # torch raises an error if they are added again.
    is_new = not hasattr(torch.Tensor, f"is_{name}")
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=is_new,
        for_module=is_new,
        for_packed_sequence=is_new,
        for_storage=True,
    )


def unsupported_operators(package: str, *names: str) -> dict[str, Callable[..., Any]]:
    """Return functions that raise `UnsupportedError` in place of a vendor's operators, by name.

    `names` contains the operators' names. Frameworks import these operators by name if the vendor's package
    is installed, although most programs never call them.
    """
    return {name: _make_unsupported(package, name) for name in names}


def _make_unsupported(package: str, name: str) -> Callable[..., Any]:
    """Return a function named `name` that raises `UnsupportedError`."""

    def unsupported(*arguments: Any, **options: Any) -> Any:
        from accel_core import UnsupportedError

        raise UnsupportedError(
            f"{package}.{name} is not simulated, because it is one of the vendor's kernels. Choose an "
            "implementation in the framework that uses torch's operators, or run the program on the "
            "vendor's device."
        )

    unsupported.__name__ = unsupported.__qualname__ = name
    return unsupported
