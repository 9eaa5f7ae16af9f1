"""What a plugin may implement: pluggy hook specifications and the marker for implementations.

An entry point in group `accel.backends` names a module whose functions carry `hookimpl`. Importing that
module must import neither torch nor the vendor's package. Hooks run while an accelerator is found and
built, never between the user and the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from accel_core.backend import PROJECT, Backend, ProbeResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a function of a plugin as an implementation of one of the hooks below.
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def accel_backends() -> Backend | Sequence[Backend]:  # type: ignore[empty-body]
    """Return the `Backend` declarations of this plugin, one or several."""


@hookspec(firstresult=True)
def accel_probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Say whether `backend` is usable; `None` leaves it to the default probe.

    Called after everything that the declaration tells was checked, and before torch or the vendor is
    imported; where the probe is isolated, in the child process. Of the backend's own plugin alone. `others`
    are the other installed backends. An exception counts as "not usable", with the exception as the cause.
    """


@hookspec(firstresult=True)
def accel_create(backend: Backend, others: tuple[Backend, ...]) -> object:
    """Return the `Accelerator` for `backend`; `None` leaves it to `Backend.accelerator`.

    torch and the vendor's package are imported by then. `DeclinedError` says that this backend is not
    for this machine.
    """


@hookspec
def accel_op_builders(backend: Backend) -> Mapping[str, str]:  # type: ignore[empty-body]
    """Return op builders for `backend`, `{"FusedAdamBuilder": "module:Class"}`."""


@hookspec(firstresult=True)
def accel_explain(backend: Backend, error: BaseException) -> str | None:
    """Return the next step for a user who met `error` ("source CANN's set_env.sh"), or `None`.

    For what `Backend.hints` cannot say. From API level 2 on every plugin is asked about every `backend`'s
    errors, the backend's own plugin first.
    """
