"""Accelerators of other frameworks' interfaces, made ours by whoever knows that interface.

An entry point in group `accel.adapters`, named as the framework's package, names a module with two functions.
`adapt(foreign, backend)` makes an `Accelerator` of an object or a class, or `None` where it does not know it;
`backend` is the declaration of the plugin that named it, or `None` where a user gives it. `before_import()`
is called when the framework is imported by such a class, while the accelerator is being made.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from accel_core._support.packages import EntryPoint
from accel_core.errors import InvalidAcceleratorError
from accel_core.settings import entry_points

if TYPE_CHECKING:
    from accel_core.accelerators import Accelerator
    from accel_core.backend import Backend

#: Entry points that name such a module.
GROUP = "accel.adapters"


def adapted(foreign: object, backend: Backend | None = None) -> Accelerator | None:
    """`foreign` as an accelerator, by the first adapter that knows what it is; `None` where none does.

    What the adapter raises comes out as it is; `InvalidAcceleratorError` where it gives something else.
    """
    from accel_core.accelerators import Accelerator

    for entry_point in entry_points(GROUP):
        adapter = entry_point.load()
        made: object = adapter.adapt(foreign, backend)
        if isinstance(made, Accelerator):
            return made
        if made is not None:
            raise InvalidAcceleratorError(
                f"the adapter {entry_point.value} ({entry_point.distribution}) made {made!r} of {foreign!r}, "
                "expected an accel_core.Accelerator, or None where it does not know it"
            )
    return None


@contextlib.contextmanager
def frameworks_prepared() -> Iterator[None]:
    """While a plugin's class is imported: a framework that it imports is prepared for that."""
    known = {e.name: e for e in entry_points(GROUP) if e.name not in sys.modules}
    if not known:
        yield
        return
    finder: Any = _BeforeImport(known)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _BeforeImport:
    """A finder that finds nothing: it sees a framework's import coming."""

    def __init__(self, known: dict[str, EntryPoint]) -> None:
        self._known = known

    def find_spec(self, name: str, *_: object) -> None:
        """Nothing; the framework of that name is prepared, once."""
        entry_point = self._known.pop(name, None)
        if entry_point is not None:
            entry_point.load().before_import()
