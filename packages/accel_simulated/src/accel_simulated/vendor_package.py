"""Do to torch what importing a vendor's own package does."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from accel_simulated import device

__all__ = ["finish", "not_simulated", "start"]


def start(name: str) -> None:
    """Load the device into torch; the package calls this first, because `parts` need the device's name."""
    device.start(name)


def finish(module: ModuleType) -> None:
    """Make `module` `torch.<name>`, and register what belongs to it."""
    import torch
    from torch.utils.checkpoint import DefaultDeviceType

    from accel_simulated import collective, data_parallel, inductor, sending

    name, vendor = device.vendor.name, device.vendor
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    if vendor.kind == "PrivateUse1":
        methods = (
            torch.utils.backend_registration.generate_methods_for_privateuse1_backend
        )
        # Of a type that torch knows, as vulkan, tensors have `is_vulkan` already, and torch refuses the rest.
        new = not hasattr(torch.Tensor, f"is_{name}")
        methods(
            for_tensor=new, for_module=new, for_packed_sequence=new, for_storage=True
        )
        if not vendor.plain:
            inductor.teach(name)
    DefaultDeviceType.set_device_type(name)
    sending.refuse(torch.UntypedStorage, name)
    for function, refusal in data_parallel.refusals(name).items():
        setattr(torch._C, function, refusal)
    if vendor.collective and torch.distributed.is_available():
        collective.register(vendor.collective, name)


def not_simulated(package: str, *names: str) -> dict[str, Callable[..., Any]]:
    """Return a function for each of the vendor's own operators, which says that there is no such kernel here.

    Frameworks import these by name where the vendor's package is, and most programs never call them.
    """

    def refusing(name: str) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> Any:
            from accel_core import UnsupportedError

            raise UnsupportedError(
                f"{package}.{name} is not simulated: it is a kernel of the vendor's own. Choose the "
                "framework's implementation in torch's operators, or run this on the vendor's device"
            )

        refuse.__name__ = refuse.__qualname__ = name
        return refuse

    return {name: refusing(name) for name in names}
