"""`TorchAccelerator` without an override on a device that has less than a GPU: what stands in."""

from __future__ import annotations

from typing import Any

import torch
import torch_plain  # noqa: F401 - brings the device

from accel_core import Backend, TorchAccelerator
from simulated_checks import capabilities

__all__ = ["stand_ins"]


def stand_ins() -> dict[str, Any]:
    """Use each stand-in as a program would; raises where one does not serve."""
    a = TorchAccelerator(Backend(name="plain", priority=1, device_type="plain"))
    before = torch.plain._initialized
    stream, event, end = (a.Stream(), a.Event(enable_timing=True), a.Event(enable_timing=True))
    tensor = torch.ones(1 << 16, device="plain")
    event.record(a.current_stream())
    with a.stream(stream):
        for _ in range(20):
            tensor = tensor * 1.5
        stream.wait_stream(a.default_stream())
        stream.wait_event(a.current_stream().record_event())
    end.record(stream)
    end.synchronize()
    stream.synchronize()
    tensor.record_stream(stream)
    tensor.record_stream(a.current_stream())
    host = torch.arange(6.0).view(2, 3)
    pinned = a.pin_memory(host)
    empty = a.pin_empty(2, 3, dtype=torch.int16)
    compiled = torch.compile(lambda t: (t * 2).sum(), backend=a.get_compile_backend())
    small = torch.ones(3, device="plain", requires_grad=True)
    compiled(small).backward()
    return {
        "started by construction": before,
        "elapsed": event.elapsed_time(end) > 0,
        "query": stream.query() and end.query(),
        "a stream of torch's": isinstance(stream, torch.Stream),
        "pinned": [
            pinned.tolist() == host.tolist(),
            pinned is not host,
            a.is_pinned(pinned),
            empty.shape == (2, 3),
        ],
        "compile": [a.get_compile_backend(), small.grad.tolist() if small.grad is not None else None],
        "graphs": a.supports_graphs(),
        "communication": a.communication_backend_name(),
        "rows": capabilities.of("plain"),
        "more": list(capabilities.SLOW),
    }
