"""Register a `DeviceInterface` with dynamo and inductor for a device type that has none."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["register_device_interface"]


def register_device_interface(accelerator: Accelerator) -> None:
    """Register a `DeviceInterface` with Dynamo for the accelerator's device type.

    Nothing is registered unless the device type uses torch's slot for external devices (PrivateUse1), and has
    no interface yet. If the vendor registers an interface later, that interface replaces this one.
    """
    import torch
    from torch._dynamo import device_interface as dynamo

    device_type = accelerator.device_type
    # torch itself has interfaces for all other device types.
    if device_type != torch._C._get_privateuse1_backend_name():
        return
    try:
        dynamo.get_interface_for_device(device_type)
    except NotImplementedError:
        interface = _interface_class(dynamo.DeviceInterface, accelerator)
        dynamo.register_interface_for_device(device_type, interface)
        for index in range(accelerator.device_count()):
            dynamo.register_interface_for_device(f"{device_type}:{index}", interface)


def _properties_for_inductor(accelerator: Accelerator) -> list[Any]:
    """Return each device's name and multiprocessor count, which dynamo and inductor read."""
    properties_of_devices = []
    for index in range(accelerator.device_count()):
        properties = accelerator.device_properties(index)
        properties_for_inductor = SimpleNamespace(
            name=properties.name,
            multi_processor_count=properties.multiprocessors or 1,
        )
        properties_of_devices.append(properties_for_inductor)
    return properties_of_devices


def _capability_text(accelerator: Accelerator, device: Any) -> str:
    """Return the device's compute capability, such as `"9.0"`.

    Returns an empty string if the vendor defines none.
    """
    capability = accelerator.device_properties(device).capability
    if capability is None:
        return ""
    return ".".join(str(number) for number in capability)


def _is_bf16_supported(accelerator: Accelerator, *, emulated: bool) -> bool:
    """Return whether the device supports bfloat16. With `emulated`, emulation counts as support."""
    if emulated:
        return accelerator.is_bf16_supported()
    return accelerator.is_bf16_native()


def _interface_class(base: Any, accelerator: Accelerator) -> Any:
    """Return a subclass of dynamo's `DeviceInterface` whose members call the accelerator."""

    # Cached, because inductor's worker processes, which compile, must not start the device.
    @functools.cache
    def all_properties() -> list[Any]:
        return _properties_for_inductor(accelerator)

    def properties_of(device: Any = None) -> Any:
        # torch passes a `torch.device`, an index, or None for the current device.
        index = getattr(device, "index", device)
        if index is None:
            index = accelerator.current_device()
        return all_properties()[index]

    def swap_device(index: int) -> int:
        previous = accelerator.current_device()
        if index >= 0:  # torch passes -1 to keep the current device.
            accelerator.set_device(index)
        return previous

    class Interface(base):  # type: ignore[misc]
        """A subclass of Dynamo's `DeviceInterface` whose members call the accelerator."""

        Event, Stream = accelerator.Event, accelerator.Stream
        device = staticmethod(accelerator.device_guard)
        current_device = staticmethod(accelerator.current_device)
        set_device = staticmethod(accelerator.set_device)
        exchange_device = maybe_exchange_device = staticmethod(swap_device)
        device_count = staticmethod(accelerator.device_count)
        is_available = staticmethod(accelerator.is_available)
        stream = staticmethod(accelerator.stream)
        current_stream = staticmethod(accelerator.current_stream)
        set_stream = staticmethod(accelerator.set_stream)
        synchronize = staticmethod(accelerator.synchronize)
        memory_allocated = staticmethod(accelerator.memory_allocated)
        get_device_properties = staticmethod(properties_of)

        class Worker:
            """The members that inductor's worker processes call."""

            set_device = staticmethod(accelerator.set_device)
            current_device = staticmethod(accelerator.current_device)
            get_device_properties = staticmethod(properties_of)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(getattr(accelerator.current_stream(device_idx), "stream_id", 0))

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return _capability_text(accelerator, device)

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return _is_bf16_supported(accelerator, emulated=including_emulation)

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:  # noqa: ARG004 - torch's signature
            return accelerator.is_triton_supported()

    return Interface
