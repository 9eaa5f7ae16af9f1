"""What one accelerator is and can do, asked of the live object and kept as plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from accel_core.accelerators._streams import HostStream
from accel_core.accelerators.interface import Accelerator
from accel_core.accelerators.records import DeviceProperties
from accel_core.detection.records import CAUGHT, root_cause
from accel_core.errors import UnsupportedError

__all__ = ["portray"]

T = TypeVar("T")


class _Questions:
    """Asks, and notes what fails: one wedged device must not hide what the others say."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def __call__(self, what: str, ask: Callable[[], T]) -> T | None:
        """The answer; `None` where the device has none, or where the vendor's code fails."""
        try:
            return ask()
        except UnsupportedError:
            return None
        except CAUGHT as error:
            self.problems[what] = root_cause(error)
            return None


def portray(accelerator: Accelerator) -> dict[str, Any]:
    """Everything that `accel info` tells, as JSON can hold it; may initialise the device."""
    ask, backend = _Questions(), accelerator.backend
    source = backend.provenance
    count = ask("device_count()", accelerator.device_count)
    capabilities = ask("capabilities()", accelerator.capabilities)
    version = ask("communication_backend_version()", accelerator.communication_backend_version)
    visible = ask("visible_device_ids()", accelerator.visible_device_ids)
    return {
        "name": accelerator.name,
        "distribution": source.distribution if source else "",
        "version": source.version if source else "",
        "description": backend.description,
        "url": backend.url,
        "priority": backend.priority,
        "device_type": ask("device()", lambda: accelerator.device().type),
        "vendor_import": list(backend.vendor_imports),
        "torch": _torch_version(),
        "devices": [_device(accelerator, index, ask) for index in range(count or 0)],
        "dtypes": ask("supported_dtypes()", lambda: [_dtype(d) for d in accelerator.supported_dtypes()]),
        "communication_backend": ask("communication_backend_name()", accelerator.communication_backend_name),
        "communication_backend_version": None if version is None else list(version),
        "compile_backend": ask("get_compile_backend()", accelerator.get_compile_backend),
        "streams": ask("Stream", lambda: not _is_host_stream(accelerator.Stream)),
        "capabilities": capabilities.to_dict() if capabilities else {},
        "op_builders": dict(ask("op_builders()", accelerator.op_builders) or {}),
        "visible_devices_envs": ask("visible_devices_envs()", accelerator.visible_devices_envs),
        "visible_device_ids": None if visible is None else list(visible),
        "export_envs": ask("export_envs()", accelerator.export_envs),
        "problems": ask.problems,
    }


def _device(accelerator: Accelerator, index: int, ask: _Questions) -> dict[str, Any]:
    nothing = DeviceProperties(name="")
    properties = ask(f"device_properties({index})", lambda: accelerator.device_properties(index)) or nothing
    capability = properties.capability
    return {
        "index": index,
        "torch_device": ask(f"device_name({index})", lambda: accelerator.device_name(index)),
        **properties.to_dict(),
        "capability": None if capability is None else list(capability),
        "available_memory": ask(f"available_memory({index})", lambda: accelerator.available_memory(index)),
    }


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _dtype(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _is_host_stream(stream: object) -> bool:
    """Whether the class only stands for streams, on a device whose calls end when their work is done."""
    return isinstance(stream, type) and issubclass(stream, HostStream)
