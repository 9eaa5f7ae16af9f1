"""What a plugin may implement: pluggy hook specifications and the marker for implementations.

An entry point in group `accel.backends` names a module whose functions carry `hookimpl`. Importing that
module must import neither torch nor the vendor's package. Hooks run while an accelerator is found and
built, never between the user and the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pluggy

from accel_core.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["ENTRY_POINT_GROUP", "PROJECT", "ProbeResult", "hookimpl", "hookspec"]

#: pluggy's project name.
PROJECT = "accel"
#: The entry-point group that discovery reads.
ENTRY_POINT_GROUP = "accel.backends"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a function of a plugin as an implementation of one of the hooks below.
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What `accel_probe` answers: usable or not, why, and what the user can do about it."""

    usable: bool
    #: One clause, without the backend's name: "torch.cuda is impersonated by torch_supa".
    reason: str = ""
    #: The next step: a command or a setting.
    hint: str = ""
    #: Number of devices, where the probe knows it.
    devices: int | None = None
    #: The device may be there, but this backend leaves it to another one.
    stands_aside: bool = False


@hookspec
def accel_backends() -> Backend | Sequence[Backend]:  # type: ignore[empty-body]
    """Return the `Backend` declarations of this plugin, one or several."""


@hookspec(firstresult=True)
def accel_probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Say whether `backend` is usable; `None` leaves it to the default probe.

    Called after policy, platform, distributions and hardware evidence were checked and before torch or
    the vendor is imported; where the probe is isolated, in the child process. `others` are the other
    installed backends. An exception counts as "not usable", with the exception as the cause.
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
    """Return the next step for a user who met `error` ("source CANN's set_env.sh"), or `None`."""
