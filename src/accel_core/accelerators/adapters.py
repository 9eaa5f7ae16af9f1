"""Accelerators of other frameworks' interfaces, made ours by whoever knows that interface.

An entry point in group `accel.adapters` names a module with two functions. `adapt(foreign, backend)` makes an
`Accelerator` of an object or a class, or `None` where it does not know it; `backend` is the declaration of
the plugin that named it, or `None` where a user gives it. `prepared()` is a context in which such a class,
which may import its framework, is imported while the accelerator is being made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from accel_core.accelerators import Accelerator
from accel_core.backend import Backend
from accel_core.errors import InvalidAcceleratorError
from accel_core.settings import entry_points

#: Entry points that name such a module.
GROUP = "accel.adapters"


def adapted(foreign: object, backend: Backend | None = None) -> Accelerator | None:
    """Return `foreign` as an accelerator, made by the first adapter that knows it; `None` if none does.

    Errors of the adapter pass through. Raises `InvalidAcceleratorError` if an adapter returns anything else.
    """
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


@contextmanager
def prepared() -> Iterator[None]:
    """Enter the context of every adapter, in which a plugin's class, and its framework, can be imported."""
    with ExitStack() as stack:
        for entry_point in entry_points(GROUP):
            stack.enter_context(entry_point.load().prepared())
        yield
