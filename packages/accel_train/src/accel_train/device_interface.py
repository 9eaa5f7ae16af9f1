"""dynamo's and inductor's `DeviceInterface` for a device type that has none, built on its accelerator."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["register"]


def register(accelerator: Accelerator) -> None:
    """Register the accelerator's device type with dynamo if it is on PrivateUse1 and nobody registered it.

    An interface that a vendor registers later replaces this one.
    """
    import torch
    from torch._dynamo import device_interface as dynamo

    kind = accelerator.device_type
    if kind != torch._C._get_privateuse1_backend_name():
        return
    try:
        dynamo.get_interface_for_device(kind)
    except NotImplementedError:
        interface = _interface(dynamo.DeviceInterface, accelerator)
        for name in (
            kind,
            *(f"{kind}:{index}" for index in range(accelerator.device_count())),
        ):
            dynamo.register_interface_for_device(name, interface)


def _interface(base: Any, ours: Accelerator) -> Any:
    def exchange(index: int) -> int:
        before = ours.current_device()
        if index >= 0:  # torch's way to say: stay
            ours.set_device(index)
        return before

    @functools.cache
    def every() -> list[Any]:
        # Kept for compiling processes, which may not start the device.
        known = [ours.device_properties(index) for index in range(ours.device_count())]
        return [
            SimpleNamespace(name=of.name, multi_processor_count=of.multiprocessors or 1)
            for of in known
        ]

    def properties(device: Any = None) -> Any:
        number = getattr(device, "index", device)
        return every()[ours.current_device() if number is None else number]

    class Interface(base):  # type: ignore[misc]
        """Every member that dynamo and inductor ask, of the accelerator."""

        Event, Stream = ours.Event, ours.Stream
        device = staticmethod(ours.device_guard)
        current_device = staticmethod(ours.current_device)
        set_device = staticmethod(ours.set_device)
        exchange_device = maybe_exchange_device = staticmethod(exchange)
        device_count = staticmethod(ours.device_count)
        is_available = staticmethod(ours.is_available)
        stream = staticmethod(ours.stream)
        current_stream = staticmethod(ours.current_stream)
        set_stream = staticmethod(ours.set_stream)
        synchronize = staticmethod(ours.synchronize)
        memory_allocated = staticmethod(ours.memory_allocated)
        get_device_properties = staticmethod(properties)

        class Worker:
            """The same for processes that compile."""

            set_device = staticmethod(ours.set_device)
            current_device = staticmethod(ours.current_device)
            get_device_properties = staticmethod(properties)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(getattr(ours.current_stream(device_idx), "stream_id", 0))

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            known = ours.device_properties(device).capability
            return "" if known is None else ".".join(map(str, known))

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return (
                ours.is_bf16_supported()
                if including_emulation
                else ours.is_bf16_native()
            )

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:  # noqa: ARG004 - torch's signature
            return ours.is_triton_supported()

    return Interface
