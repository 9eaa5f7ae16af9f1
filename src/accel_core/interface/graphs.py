"""Sections of the interface: graphs, and what compiles for the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from accel_core.interface.devices import Base
from accel_core.interface.streams import Streams

if TYPE_CHECKING:
    import torch

    from accel_core.interface.records import Graph


class Graphs(Streams):
    """Graphs: work that is captured once and replayed, by the vendor's class, else by
    torch's.
    """

    #: Whether the warning that this device has no graphs was given.
    _warned_of_no_graphs = False

    @cached_property
    def _graph_and_capture(self) -> tuple[Any, Any]:
        """The vendor's graph class and its context manager, else torch's; no class if
        there is none.

        Every vendor names the class after itself: CUDAGraph, NPUGraph, MLUGraph,
        XPUGraph, HPUGraph.
        """
        capture = self._lookup("graph")
        names = [f"{self._device_type.upper()}Graph"]
        names += [name for name in dir(self.device_module) if name.endswith("Graph")]
        for name in names:
            kind = self._lookup(name)
            if capture and isinstance(kind, type) and hasattr(kind, "replay"):
                return kind, capture
        torch_graph = getattr(self._torch_accelerator, "Graph", None)
        return torch_graph, self._capture_in_torch

    def supports_graphs(self) -> bool:
        """Return whether a graph can be made here: there is a graph class, and there is
        a device.

        The first call makes a graph, which may initialise the device: the class alone
        proves nothing, because a torch built without the vendor has it too.
        """
        graph, _ = self._graph_and_capture
        if graph is None or not self.is_available():
            return False
        return self._can_make_a_graph

    @cached_property
    def _can_make_a_graph(self) -> bool:
        with suppress(RuntimeError, TypeError):
            self._graph_and_capture[0]()
            return True
        return False

    def create_graph(self, **options: Any) -> Graph | None:
        """Return a new graph of the vendor's class, or `None` if graphs are not
        supported.

        `options` are those of `torch.accelerator.Graph` that the vendor's class takes
        too. With `keep_graph=True` the captured work can be changed until
        `instantiate_graph`, or else the first replay, makes it ready to run. Raises
        `UnsupportedError` for an option that the class does not take.

        Work captured into `None` runs once and is never replayed, so the first `None`
        gives a `UserWarning`.
        """
        if self.supports_graphs():
            graph, _ = self._graph_and_capture
            return cast("Graph", self._call_with_options(graph, **options))
        if not self._warned_of_no_graphs:
            self._warned_of_no_graphs = True
            warnings.warn(
                f"{self.name}: graphs are not supported, so create_graph() returns "
                "None: capture_to_graph(None) runs its work once, and "
                "replay_graph(None) runs nothing. Call supports_graphs() first; "
                "without graphs, do the work itself each time",
                stacklevel=2,
            )
        return None

    def capture_to_graph(
        self,
        graph: Graph | None,
        pool: Any = None,
        stream: torch.Stream | None = None,
        **options: Any,
    ) -> AbstractContextManager[Any]:
        """Return a context manager that captures the block's work into `graph`; with
        `None` the work simply runs.

        `pool` is the memory pool of another graph to share; `stream` is the stream on
        which to capture. `options` are those of the vendor's capture.
        `capture_error_mode` says in torch's words which calls fail meanwhile:
        `"global"` (unsafe ones in any thread), `"thread_local"` (in this one), or
        `"relaxed"` (only those that no capture permits). Raises `UnsupportedError` for
        an argument that the capture does not take.
        """
        if graph is None:
            return nullcontext()
        # By name, and only what is needed: vendors differ in the order and in what they
        # take.
        keywords = {}
        if pool is not None:
            keywords["pool"] = pool
        if stream is not None:
            keywords["stream"] = stream
        _, capture = self._graph_and_capture
        context = self._call_with_options(capture, graph, **keywords, **options)
        return cast("AbstractContextManager[Any]", context)

    def _call_with_options(self, make: Any, *arguments: Any, **options: Any) -> Any:
        """Call a vendor's class with options that not every vendor's takes."""
        try:
            return make(*arguments, **options)
        except TypeError as error:
            call = getattr(make, "__name__", str(make))
            if options:
                call = f"{call} with {' and '.join(options)}"
            raise self._unsupported(call, str(error)) from error

    @contextmanager
    def _capture_in_torch(
        self,
        graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "",
    ) -> Iterator[None]:
        if pool is not None:
            graph.graph_pool = pool
        if capture_error_mode:
            graph.capture_error_mode = capture_error_mode
        # The default stream cannot be captured; torch.cuda.graph makes a stream too.
        if stream is None:
            stream = self.Stream()
        with self.stream(stream), graph:
            yield

    def replay_graph(self, graph: Graph | None) -> None:
        """Run the work that `graph` captured; do nothing for `None`."""
        self._call_graph(graph, "replay")

    def instantiate_graph(self, graph: Graph | None) -> None:
        """Make the work that `graph` captured ready to run, which costs the first
        replay less; do nothing for `None`.

        Of use for a graph made with `keep_graph=True`. Raises `UnsupportedError` if the
        vendor's class has no `instantiate`.
        """
        self._call_graph(graph, "instantiate")

    def reset_graph(self, graph: Graph | None) -> None:
        """Delete the work that `graph` captured, so that it can capture anew; do
        nothing for `None`.

        Raises `UnsupportedError` if the vendor's class has no `reset`.
        """
        self._call_graph(graph, "reset")

    def enable_graph_debug_mode(self, graph: Graph | None) -> None:
        """Have `graph` keep what `debug_dump_graph` writes; call it before the capture.
        Do nothing for `None`.

        Raises `UnsupportedError` if the vendor's class has no `enable_debug_mode`.
        """
        self._call_graph(graph, "enable_debug_mode")

    def debug_dump_graph(self, graph: Graph | None, path: str) -> None:
        """Write the work that `graph` captured to the file `path`, in the vendor's
        format (CUDA: DOT); do nothing for `None`.

        Raises `UnsupportedError` if the vendor's class has no `debug_dump`, and the
        vendor's error, mostly a `RuntimeError`, if the debug mode was not enabled.
        """
        self._call_graph(graph, "debug_dump", path)

    def _call_graph(self, graph: Graph | None, name: str, *arguments: str) -> None:
        if graph is None:
            return
        if not hasattr(graph, name):
            raise self._unsupported(f"{type(graph).__name__}.{name}")
        getattr(graph, name)(*arguments)

    def is_current_stream_capturing(self) -> bool:
        """Return whether work on the current stream is being captured into a graph;
        starts no device.
        """
        with suppress(
            AttributeError, RuntimeError
        ):  # not in torch.accelerator; a device without graphs
            return self.is_initialized() and bool(
                self._torch_accelerator.current_stream().is_capturing()
            )
        return False


class Compilation(Base):
    """The compiler for `torch.compile`, and Triton."""

    @cached_property
    def _compile_backend(self) -> str:
        """The same as an attribute, which subclasses set."""
        return self.backend.compile_backend or _compiler_for(self._device_type)

    def get_compile_backend(self) -> str:
        """Return the `backend` to pass to `torch.compile`.

        It is the declared one. If none is declared: torch's default if the vendor has
        set one (torch 2.13); else the compiler that is registered under the device type
        (`torch_dynamo_backends`); else `"inductor"` if it generates code for the
        device; else `"aot_eager"`, which compiles forward and backward and runs torch's
        own kernels.
        """
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; raises `ValueError`, with the registered
        ones, for an unknown name.
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
        """Return whether Triton kernels run on the device."""
        return False

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton kernel is faster than `torch._grouped_mm` on this
        device.
        """
        return False


def _compiler_for(device_type: str) -> str:
    """The best of torch.compile's backends for a device of which nothing is
    declared.
    """
    # For these every inductor generates code; for others its table is read, which takes
    # seconds.
    if device_type in ("cpu", "cuda", "xpu"):
        return "inductor"
    with suppress(ImportError):  # a build without inductor
        import torch._dynamo

        default: object = "inductor"
        if hasattr(torch.compiler, "get_default_backend"):
            default = torch.compiler.get_default_backend()
        if isinstance(default, str) and default not in ("inductor", "accel"):
            return default
        if device_type in torch._dynamo.list_backends(exclude_tags=()):
            return device_type
        from torch._inductor.codegen import common

        # Before torch 2.9 the lowering of a graph called it, under another name.
        if hasattr(common, "init_backend_registration"):
            common.init_backend_registration()
        if common.get_scheduling_for_device(device_type) is not None:
            return "inductor"
    return "aot_eager"
