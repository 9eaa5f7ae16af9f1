"""Graphs with the vendors' names and arguments, implemented with `torch.accelerator.Graph`."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import synchronize
from accel_simulated.parts.lifecycle import running
from accel_simulated.parts.memory import empty_cache
from accel_simulated.parts.streams import Stream, StreamContext

__all__ = [
    "BareGraph", "Capture", "PooledGraph", "VendorGraph", "graph_pool_handle", "is_current_stream_capturing",
]  # fmt: skip


class BareGraph:
    """A graph with capture and replay, without a shared memory pool."""

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
    """A graph with a memory pool; a vendor's subclass defines `capture_begin` with its default mode."""

    def _sim_begin(self, pool: Any, mode: str) -> None:
        self._sim_graph.capture_begin(pool=pool, capture_error_mode=mode)

    def pool(self) -> Any:
        return self._sim_graph.pool()

    def debug_dump(self, debug_path: str) -> None:
        self._sim_graph.debug_dump(debug_path)


class VendorGraph(PooledGraph):
    """The base of vendors' graph classes that have the methods of `torch.cuda.CUDAGraph`."""

    def enable_debug_mode(self) -> None:
        self._sim_graph.enable_debug_mode()


class Capture:
    """The context manager that vendors call `graph`; captures on `stream`, by default a new stream."""

    def __init__(self, graph: Any, arguments: dict[str, Any], stream: Any) -> None:
        self._graph, self._arguments = graph, arguments
        self._context = StreamContext(Stream() if stream is None else stream)

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        self._context.__enter__()
        self._graph.capture_begin(**self._arguments)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._graph.capture_end()
        self._context.__exit__(exc_type, exc_value, traceback)


def graph_pool_handle() -> tuple[int, int]:
    return simulated.library.sim_new_pool(), 0


def is_current_stream_capturing() -> bool:
    running()
    return bool(simulated.library.sim_is_capturing())
