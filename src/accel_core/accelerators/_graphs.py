"""Section of the interface: graphs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from accel_core.accelerators._dtypes import Dtypes

__all__ = ["Graphs"]


class Graphs(Dtypes):
    """Graphs: work captured once and replayed. The default is a device without them."""

    def supports_graphs(self) -> bool:
        """Whether `create_graph` gives a graph."""
        return False

    def create_graph(self) -> Any:
        """A new graph, or `None` where graphs are not supported."""
        return None

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """A context manager that captures work into `graph`; with `None` the work simply runs.

        `pool` is another graph's memory pool to share, `stream` the stream to capture on.
        """
        return nullcontext()

    def replay_graph(self, graph: Any) -> None:
        """Run what `graph` captured; nothing for `None`."""
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self) -> bool:
        """Whether the current stream is capturing into a graph."""
        return False
