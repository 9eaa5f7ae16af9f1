"""Sections of the interface: device graphs, and compilation for the device."""

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
    """The members for device graphs, which capture work once and replay it. The
    vendor's class is used, or otherwise torch's class.
    """

    #: Whether the warning that device graphs are not supported was given.
    _warned_of_no_graphs = False

    @cached_property
    def _graph_and_capture(self) -> tuple[Any, Any]:
        """The graph class and the context manager that captures, from the vendor or
        otherwise from torch. The class is `None` if there is none.

        Every vendor names its class after itself: CUDAGraph, NPUGraph, MLUGraph,
        XPUGraph, HPUGraph.
        """
        capture = self._vendor_attribute("graph")
        names = []
        if capture:
            names.append(f"{self._device_type.upper()}Graph")
            names += [n for n in dir(self.device_module) if n.endswith("Graph")]
        for name in names:
            graph_class = self._vendor_attribute(name)
            if isinstance(graph_class, type) and hasattr(graph_class, "replay"):
                return graph_class, capture
        torch_graph_class = getattr(self._torch_accelerator, "Graph", None)
        return torch_graph_class, self._capture_in_torch

    def supports_graphs(self) -> bool:
        """Return whether device graphs are supported, which requires a graph class and a device.

        The first call creates a graph, which may initialize the device. The class alone
        proves nothing, because a torch built without the vendor's toolkit has the class
        too.
        """
        graph_class, _ = self._graph_and_capture
        if graph_class is None or not self.is_available():
            return False
        return self._can_create_graph

    @cached_property
    def _can_create_graph(self) -> bool:
        graph_class, _ = self._graph_and_capture
        with suppress(RuntimeError, TypeError):
            graph_class()
            return True
        return False

    def create_graph(self, **options: Any) -> Graph | None:
        """Return a new graph of the vendor's class, or `None` if device graphs are not supported.

        `options` are those options of `torch.accelerator.Graph` that the vendor's class
        accepts too. With `keep_graph=True`, the captured work can be changed until
        `instantiate_graph`, or otherwise the first replay, prepares it to run. Raises
        `UnsupportedError` for an option that the class does not accept.

        Work that is captured into `None` runs once and is never replayed. A
        `UserWarning` is therefore issued when `None` is first returned.
        """
        if self.supports_graphs():
            graph_class, _ = self._graph_and_capture
            return cast("Graph", self._call_with_options(graph_class, **options))
        if not self._warned_of_no_graphs:
            self._warned_of_no_graphs = True
            warnings.warn(
                f"{self.name}: device graphs are not supported, so create_graph() returns "
                "None. capture_to_graph(None) runs the work once, and "
                "replay_graph(None) runs nothing. Call supports_graphs() first. "
                "If supports_graphs() returns False, run the work without a graph each time",
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
        """Return a context manager that captures the block's work into `graph`. If
        `graph` is `None`, the work simply runs.

        `pool` is the memory pool of another graph to share. `stream` is the stream on
        which to capture. `options` are options of the vendor's capture.
        `capture_error_mode` is torch's option for the calls that fail during the
        capture: `"global"` (unsafe calls in any thread), `"thread_local"` (unsafe calls
        in this thread), or `"relaxed"` (only calls that no capture permits). Raises
        `UnsupportedError` for an argument that the vendor's capture does not accept.
        """
        if graph is None:
            return nullcontext()
        # Arguments are passed by name and only if they are given, because vendors'
        # functions differ in the order of parameters and in the accepted parameters.
        keywords = {}
        if pool is not None:
            keywords["pool"] = pool
        if stream is not None:
            keywords["stream"] = stream
        _, capture = self._graph_and_capture
        context = self._call_with_options(capture, graph, **keywords, **options)
        return cast("AbstractContextManager[Any]", context)

    def _call_with_options(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a vendor's class or function with options that not every vendor's
        accepts. Raises `UnsupportedError` if it does not.
        """
        try:
            return function(*arguments, **options)
        except TypeError as error:
            call = getattr(function, "__name__", str(function))
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
        # The default stream cannot be captured. torch.cuda.graph creates a stream too.
        if stream is None:
            stream = self.Stream()
        with self.stream(stream), graph:
            yield

    def replay_graph(self, graph: Graph | None) -> None:
        """Run the work that `graph` captured. If `graph` is `None`, do nothing."""
        self._call_graph_method(graph, "replay")

    def instantiate_graph(self, graph: Graph | None) -> None:
        """Prepare the work that `graph` captured for execution, which makes the first
        replay faster. If `graph` is `None`, do nothing.

        This is useful for a graph that was created with `keep_graph=True`. Raises
        `UnsupportedError` if the vendor's class has no `instantiate`.
        """
        self._call_graph_method(graph, "instantiate")

    def reset_graph(self, graph: Graph | None) -> None:
        """Delete the work that `graph` captured, so that it can capture again. If
        `graph` is `None`, do nothing.

        Raises `UnsupportedError` if the vendor's class has no `reset`.
        """
        self._call_graph_method(graph, "reset")

    def enable_graph_debug_mode(self, graph: Graph | None) -> None:
        """Make `graph` keep the data that `debug_dump_graph` writes. Call this before
        the capture. If `graph` is `None`, do nothing.

        Raises `UnsupportedError` if the vendor's class has no `enable_debug_mode`.
        """
        self._call_graph_method(graph, "enable_debug_mode")

    def debug_dump_graph(self, graph: Graph | None, path: str) -> None:
        """Write the work that `graph` captured to the file `path`, in the vendor's
        format, such as DOT for CUDA. If `graph` is `None`, do nothing.

        Raises `UnsupportedError` if the vendor's class has no `debug_dump`. If debug
        mode was not enabled, the vendor's error is raised, usually a `RuntimeError`.
        """
        self._call_graph_method(graph, "debug_dump", path)

    def _call_graph_method(
        self, graph: Graph | None, name: str, *arguments: str
    ) -> None:
        if graph is None:
            return
        if not hasattr(graph, name):
            raise self._unsupported(f"{type(graph).__name__}.{name}")
        getattr(graph, name)(*arguments)

    def is_current_stream_capturing(self) -> bool:
        """Return whether work on the current stream is being captured into a graph. The
        call starts no device.
        """
        # torch.accelerator may lack the function, and the device may not support graphs.
        with suppress(AttributeError, RuntimeError):
            if self.is_initialized():
                stream = self._torch_accelerator.current_stream()
                return bool(stream.is_capturing())
        return False


class Compilation(Base):
    """The members for the `torch.compile` backend and for Triton support."""

    @cached_property
    def _compile_backend(self) -> str:
        """The backend for `torch.compile` as an attribute, which subclasses set."""
        return self.backend.compile_backend or _compiler_for(self._device_type)

    def get_compile_backend(self) -> str:
        """Return the `backend` argument for `torch.compile`.

        The declared backend is used if there is one. Otherwise the first of these is
        used: torch's default, if the vendor has set it (torch 2.13); the compiler that
        is registered under the device type (`torch_dynamo_backends`); `"inductor"`, if
        it generates code for the device; `"aot_eager"`, which traces forward and
        backward and runs torch's kernels.
        """
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend from now on.

        Raises `ValueError`, which lists the registered backends, if the name is
        unknown.
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
    """Return the best `torch.compile` backend for a device whose plugin declares none."""
    # Every release of inductor generates code for these types. For other types, the table
    # of inductor is read, which takes seconds.
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

        # Before torch 2.9, the function had another name, and lowering a graph called it.
        if hasattr(common, "init_backend_registration"):
            common.init_backend_registration()
        if common.get_scheduling_for_device(device_type) is not None:
            return "inductor"
    return "aot_eager"
