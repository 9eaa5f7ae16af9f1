"""Streams for a device with one queue: torch takes them for its own, and nothing has to wait."""

from __future__ import annotations

from typing import Any

__all__ = ["stream_class"]

#: What torch.library keeps registered only as long as somebody holds it.
_kernels: list[Any] = []


def _record_stream(tensor: Any, stream: Any) -> None:
    pass


def stream_class(one_queue: type, torch: Any, device_type: str) -> type:
    """`one_queue` as a class of torch's streams, which `Tensor.record_stream` takes; else as it is.

    Where the device has no kernel of `record_stream`, one that does nothing is registered: of one queue, no
    memory can be given away too early.
    """
    kind = torch.Stream
    try:
        now = torch.accelerator.current_stream()
        numbers = {name: getattr(now, name) for name in ("stream_id", "device_index", "device_type")}
        made = type(
            "Stream",
            (one_queue, kind),
            {"__new__": lambda cls, *_, **__: kind.__new__(cls, **numbers)},
        )
        stream = made()
    except (RuntimeError, TypeError, AttributeError):  # this torch knows no stream of the device
        return one_queue
    try:
        tensor = torch.empty(1, device=device_type)
    except RuntimeError:  # a device that holds no tensors yet has none to record
        return made
    try:
        tensor.record_stream(stream)
    except RuntimeError:  # as NotImplementedError, or what a fallback to the CPU says
        library = torch.library.Library("aten", "IMPL")
        library.impl("record_stream", _record_stream, torch._C._dispatch_key_for_device(device_type))
        _kernels.append(library)
    return made
