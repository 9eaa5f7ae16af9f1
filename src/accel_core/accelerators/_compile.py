"""Section of the interface: compilation, Triton, profiler ranges, deferred calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._graphs import Graphs

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["Compile"]


class Compile(Graphs):
    """Compilation, Triton, profiler ranges, deferred calls."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._compile_backend = backend.compile_backend
        self._ranges = threading.local()

    def get_compile_backend(self) -> str:
        """The `backend` to give to `torch.compile`."""
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; `ValueError` lists those that are registered."""
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
        """Whether a Triton kernel beats `torch._grouped_mm` here."""
        return False

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        """Open a named range in the profiler's timeline; never raises.

        The default is `torch.profiler.record_function`, at no cost while no profiler runs. `domain`
        and `category` are for vendors that have them.
        """
        entered = None
        if self._torch.autograd._profiler_enabled():
            entered = self._torch.profiler.record_function(str(msg))
            entered.__enter__()
        # A range opened while no profiler ran is kept too, so that its end closes nothing else.
        self._open_ranges().append(entered)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the range that this thread opened last; nothing where there is none; never raises."""
        ranges = self._open_ranges()
        if ranges and (entered := ranges.pop()) is not None:
            entered.__exit__(None, None, None)

    def _open_ranges(self) -> list[Any]:
        try:
            ranges: list[Any] = self._ranges.stack
        except AttributeError:
            ranges = self._ranges.stack = []
        return ranges

    @contextmanager
    def range(self, msg: str) -> Iterator[None]:
        """A context manager around `range_push` and `range_pop`."""
        self.range_push(msg)
        try:
            yield
        finally:
            self.range_pop()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Run `callback` now, or when the device initialises where the vendor can wait for that."""
        return callback()
