"""Graphs of an accelerator over a torch device module, found by what the module has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._streams import Graphs, Streams

if TYPE_CHECKING:
    import torch

    from accel_core.accelerators.records import Graph

__all__ = ["TorchGraphs"]


class TorchGraphs(Graphs, Streams):
    """The vendor's graphs, else those of `torch.accelerator` where it serves this device."""

    #: The vendor's module: `torch.npu`.
    device_module: Any
    #: `torch.accelerator` where it speaks of this device, else `None`.
    _torch_accelerator: Any

    @cached_property
    def _graph_and_capture(self) -> tuple[Any, Any]:
        """The vendor's graph class and its context manager, else torch's, or `(None, None)`.

        Every vendor names the class after itself: CUDAGraph, NPUGraph, MLUGraph, XPUGraph, HPUGraph.
        """
        capture = getattr(self.device_module, "graph", None)
        if capture is not None:
            usual = f"{self._device_type.upper()}Graph"
            for name in (usual, *(name for name in dir(self.device_module) if name.endswith("Graph"))):
                kind = getattr(self.device_module, name, None)
                if isinstance(kind, type) and hasattr(kind, "replay"):
                    return kind, capture
        graph = getattr(self._torch_accelerator, "Graph", None)
        return (graph, self._capture_in_torch) if graph is not None else (None, None)

    def supports_graphs(self) -> bool:
        """Whether the vendor has graphs, one can be made, and there is a device to run it on.

        Makes a graph the first time, which may initialise the device: a class is there too in a torch
        that was built without the vendor, and `torch.accelerator.Graph` in every torch.
        """
        return self._graph_and_capture[0] is not None and self.is_available() and self._can_make_a_graph

    @cached_property
    def _can_make_a_graph(self) -> bool:
        try:
            self._graph_and_capture[0]()
        except (RuntimeError, TypeError):
            return False
        return True

    def create_graph(self) -> Graph | None:
        """A new graph of the vendor's class, or `None` where graphs are not supported."""
        if not self.supports_graphs():
            return super().create_graph()
        graph: Graph = self._graph_and_capture[0]()
        return graph

    def capture_to_graph(
        self, graph: Graph | None, pool: Any = None, stream: torch.Stream | None = None
    ) -> AbstractContextManager[Any]:
        """The vendor's `graph` context manager; with `None` for a graph the work simply runs.

        `pool` is another graph's memory pool to share, `stream` the stream to capture on.
        """
        if graph is None:
            return nullcontext()
        # By name, and only what was given: vendors differ in the order and in what they take.
        given = {key: value for key, value in (("pool", pool), ("stream", stream)) if value is not None}
        context: AbstractContextManager[Any] = self._graph_and_capture[1](graph, **given)
        return context

    def is_current_stream_capturing(self) -> bool:
        """Whether the current stream is capturing into a graph; starts no device to find out.

        This is torch's word, which serves where the vendor's module has none.
        """
        if self._torch_accelerator is None or not self.is_initialized():
            return False
        try:
            return bool(self._torch_accelerator.current_stream().is_capturing())
        except (AttributeError, RuntimeError):  # an older torch; a device without graphs
            return False

    @contextmanager
    def _capture_in_torch(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[None]:
        if pool is not None:
            graph.graph_pool = pool
        # The default stream cannot be captured, so torch.cuda.graph too takes one of its own.
        with self.stream(self.Stream() if stream is None else stream), graph:
            yield
