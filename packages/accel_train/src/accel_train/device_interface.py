"""Register a `DeviceInterface` with dynamo and inductor for a device type that has none."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["register"]


def register(accelerator: Accelerator) -> None:
    """Register the accelerator's device type with dynamo, if the type is on PrivateUse1 and not registered.

    If the vendor registers an interface later, the vendor's interface replaces this one.
    """
    import torch
    from torch._dynamo import device_interface as dynamo

    device_type = accelerator.device_type
    if device_type != torch._C._get_privateuse1_backend_name():
        return
    try:
        dynamo.get_interface_for_device(device_type)
    except NotImplementedError:
        interface = _interface_class(dynamo.DeviceInterface, accelerator)
        dynamo.register_interface_for_device(device_type, interface)
        for index in range(accelerator.device_count()):
            dynamo.register_interface_for_device(f"{device_type}:{index}", interface)


def _names_and_multiprocessors(accelerator: Accelerator) -> list[Any]:
    """Return the properties of each device that dynamo and inductor read: name and multiprocessor count."""
    namespaces = []
    for index in range(accelerator.device_count()):
        properties = accelerator.device_properties(index)
        namespaces.append(
            SimpleNamespace(
                name=properties.name,
                multi_processor_count=properties.multiprocessors or 1,
            )
        )
    return namespaces


def _interface_class(base: Any, accelerator: Accelerator) -> Any:
    """Return a subclass of dynamo's `DeviceInterface` whose members call the accelerator."""

    # Cached, because worker processes that compile must not start the device.
    @functools.cache
    def all_properties() -> list[Any]:
        return _names_and_multiprocessors(accelerator)

    def properties_of(device: Any = None) -> Any:
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
        """The members that dynamo and inductor call, implemented by the accelerator."""

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
            capability = accelerator.device_properties(device).capability
            return "" if capability is None else ".".join(map(str, capability))

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return (
                accelerator.is_bf16_supported()
                if including_emulation
                else accelerator.is_bf16_native()
            )

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:  # noqa: ARG004 - torch's signature
            return accelerator.is_triton_supported()

    return Interface
