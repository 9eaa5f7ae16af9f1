"""Graphs of an accelerator over a torch device module, found by what the module has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from accel_core.accelerators.interface import Accelerator

__all__ = ["TorchGraphs"]


class TorchGraphs(Accelerator):
    """The vendor's graphs, else those of `torch.accelerator` where it serves this device."""

    #: The vendor's module: `torch.npu`.
    device_module: Any
    #: `torch.accelerator` where it speaks of this device, else `None`.
    _torchs: Any
    #: What the members that are the vendor's functions call.
    _vendor: dict[str, Callable[..., Any]]

    def _bind_graphs(self) -> None:
        """Find out, once, what there is; needs `device_module` and `_torchs`."""
        self._graph_class, self._capture = self._find_graphs()
        self._graph_works: bool | None = None
        if self._torchs is not None and not hasattr(self.device_module, "is_current_stream_capturing"):
            self._vendor["is_current_stream_capturing"] = self._is_torch_capturing

    def _find_graphs(self) -> tuple[Any, Any]:
        """The vendor's graph class and its context manager, or `(None, None)`.

        Every vendor names the class after itself: CUDAGraph, NPUGraph, MLUGraph, XPUGraph, HPUGraph.
        """
        capture = getattr(self.device_module, "graph", None)
        if capture is not None:
            usual = f"{self._device_type.upper()}Graph"
            for name in (usual, *(name for name in dir(self.device_module) if name.endswith("Graph"))):
                found = getattr(self.device_module, name, None)
                if isinstance(found, type) and hasattr(found, "replay"):
                    return found, capture
        graph = getattr(self._torchs, "Graph", None)
        return (graph, self._capture_in_torch) if graph is not None else (None, None)

    def supports_graphs(self) -> bool:
        """Whether the vendor has graphs, one can be made, and there is a device to run it on.

        Makes a graph the first time, which may initialise the device: a class is there too in a torch
        that was built without the vendor, and `torch.accelerator.Graph` in every torch.
        """
        if self._graph_class is None or not self.is_available():
            return False
        if self._graph_works is None:
            self._graph_works = _can_construct(self._graph_class)
        return self._graph_works

    def create_graph(self) -> Any:
        """A new graph of the vendor's class, or `None` where graphs are not supported."""
        return self._graph_class() if self.supports_graphs() else None

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """The vendor's `graph` context manager; with `None` for a graph the work simply runs.

        `pool` is another graph's memory pool to share, `stream` the stream to capture on.
        """
        if graph is None:
            return nullcontext()
        # By name, and only what was given: vendors differ in the order and in what they take.
        given = {key: value for key, value in (("pool", pool), ("stream", stream)) if value is not None}
        context: AbstractContextManager[Any] = self._capture(graph, **given)
        return context

    def _is_torch_capturing(self) -> bool:
        """Whether torch captures the current stream into a graph of its own; starts no device to find out."""
        if not self.is_initialized():
            return False
        try:
            return bool(self._torchs.current_stream().is_capturing())
        except (AttributeError, RuntimeError):  # an older torch; a device without graphs
            return False

    @contextmanager
    def _capture_in_torch(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[None]:
        if pool is not None:
            graph.graph_pool = pool
        # The default stream cannot be captured, so torch.cuda.graph too takes one of its own.
        with self.stream(self.Stream() if stream is None else stream), graph:
            yield


def _can_construct(kind: Callable[[], object]) -> bool:
    try:
        kind()
    except (RuntimeError, TypeError):
        return False
    return True
