"""Sections of the interface: graphs, and what compiles for the device."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accel_core.accelerators.devices import Base

if TYPE_CHECKING:
    import torch

    from accel_core.accelerators.records import Graph


class Graphs(Base):
    """Graphs: work that is captured once and replayed. The default is a device without graphs."""

    def supports_graphs(self) -> bool:
        """Whether `create_graph` returns a graph."""
        return False

    #: Whether it was said that this device has no graphs.
    _said_no_graphs = False

    def create_graph(self) -> Graph | None:
        """Return a new graph, or `None` if graphs are not supported.

        Work captured into `None` runs once and is never replayed, so the first `None` gives a `UserWarning`.
        """
        if not self._said_no_graphs:
            self._said_no_graphs = True
            warnings.warn(
                f"{self.name}: graphs are not supported, so create_graph() returns None: "
                "capture_to_graph(None) runs its work once, and replay_graph(None) runs nothing. Call "
                "supports_graphs() first; without graphs, do the work itself each time",
                stacklevel=2,
            )
        return None

    def capture_to_graph(
        self, graph: Graph | None, pool: Any = None, stream: torch.Stream | None = None
    ) -> AbstractContextManager[Any]:
        """Return a context manager that captures the block's work into `graph`; with `None` the work simply
        runs.

        `pool` is the memory pool of another graph to share; `stream` is the stream on which to capture.
        """
        return nullcontext()

    def replay_graph(self, graph: Graph | None) -> None:
        """Run the work that `graph` captured; do nothing for `None`."""
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self) -> bool:
        """Whether work on the current stream is being captured into a graph."""
        return False


class Compilation(Base):
    """The compiler for `torch.compile`, and Triton."""

    @cached_property
    def _compile_backend(self) -> str:
        """The same as an attribute, which subclasses state."""
        return self.backend.compile_backend or _compiler_for(self._device_type)

    def get_compile_backend(self) -> str:
        """Return the `backend` to pass to `torch.compile`.

        It is the declared one. If none is declared: torch's default if the vendor has set one (torch 2.13);
        else the compiler that is registered under the device type (`torch_dynamo_backends`); else
        `"inductor"` if it generates code for the device; else `"aot_eager"`, which compiles forward and
        backward and runs torch's own kernels.
        """
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; raises `ValueError`, with the registered ones, for an unknown
        name.
        """
        from torch._dynamo import list_backends

        known = list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(
                f"{self.name}: {backend!r} is not a registered torch.compile backend, "
                f"expected one of {', '.join(sorted(known))}"
            )
        self._compile_backend = backend

    def is_triton_supported(self) -> bool:
        """Whether Triton kernels run on the device."""
        return False

    def prefer_triton_grouped_mm(self) -> bool:
        """Whether a Triton kernel is faster than `torch._grouped_mm` on this device."""
        return False


#: Device types for which every inductor generates code; for others its table is asked, which takes seconds.
_INDUCTORS_OWN = ("cpu", "cuda", "xpu")


def _compiler_for(device_type: str) -> str:
    """The best of torch.compile's backends for a device of which nothing is declared."""
    if device_type in _INDUCTORS_OWN:
        return "inductor"
    try:
        import torch._dynamo

        default = getattr(torch.compiler, "get_default_backend", lambda: "inductor")()
        if isinstance(default, str) and default not in ("inductor", "accel"):
            return default
        if device_type in torch._dynamo.list_backends(exclude_tags=()):
            return device_type
        from torch._inductor.codegen import common

        # Before torch 2.9 it was called where the graph is lowered, under another name.
        getattr(common, "init_backend_registration", lambda: None)()
        known = common.get_scheduling_for_device(device_type) is not None
    except ImportError:  # a build without inductor
        known = False
    return "inductor" if known else "aot_eager"
