"""Graphs with vendors' names and arguments, implemented with `torch.accelerator.Graph`."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import synchronize
from accel_simulated.parts.lifecycle import started_accelerator
from accel_simulated.parts.memory import empty_cache
from accel_simulated.parts.streams import Stream, StreamContext

__all__ = [
    "BareGraph", "Capture", "PooledGraph", "VendorGraph", "graph_pool_handle", "is_current_stream_capturing",
]  # fmt: skip


class BareGraph:
    """A graph of device work that can be captured and replayed, but cannot share its memory pool."""

    def __init__(self) -> None:
        # torch's graph is an attribute and not a base class: it has methods that a vendor's graph lacks.
        self._sim_graph: Any = torch._C._acceleratorGraph(False)

    def capture_end(self) -> None:
        self._sim_graph.capture_end()

    def replay(self) -> None:
        self._sim_graph.replay()

    def reset(self) -> None:
        self._sim_graph.reset()


class PooledGraph(BareGraph):
    """A graph of device work with a memory pool that other graphs can share.

    Each vendor's subclass defines `capture_begin` with the vendor's parameters and defaults.
    """

    def _sim_capture_begin(self, pool: Any, mode: str) -> None:
        self._sim_graph.capture_begin(pool=pool, capture_error_mode=mode)

    def pool(self) -> Any:
        return self._sim_graph.pool()

    def debug_dump(self, debug_path: str) -> None:
        self._sim_graph.debug_dump(debug_path)


class VendorGraph(PooledGraph):
    """A graph of device work with a shared memory pool and a debug mode, like `torch.cuda.CUDAGraph`."""

    def enable_debug_mode(self) -> None:
        self._sim_graph.enable_debug_mode()


class Capture:
    """A context manager that captures the device work in its `with` block into a graph.

    The work is captured on `stream`, or on a new stream if `stream` is `None`. `options` contains the
    arguments for the graph's `capture_begin` method. Vendors call this class `graph`.
    """

    def __init__(self, graph: Any, options: dict[str, Any], stream: Any) -> None:
        self._graph = graph
        self._capture_options = options
        if stream is None:
            stream = Stream()
        self._stream_context = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        self._stream_context.__enter__()
        self._graph.capture_begin(**self._capture_options)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._graph.capture_end()
        self._stream_context.__exit__(exc_type, exc_value, traceback)


def graph_pool_handle() -> tuple[int, int]:
    return simulated.library.sim_new_pool(), 0


def is_current_stream_capturing() -> bool:
    started_accelerator()
    return bool(simulated.library.sim_is_capturing())
