"""Hooks that a plugin may implement: pluggy hook specifications.

An entry point in group `accel.backends` names a module whose functions carry `hookimpl`. Importing that
module must import neither torch nor the vendor's package. Hooks run while an accelerator is found and
built, never between the user and the device.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pluggy

from accel_core.backend import PROJECT, Backend, ProbeResult

#: What a result can be: as it should be; it works, and not as somebody would expect; it does not work.
LEVELS = ("ok", "warning", "error")


class CheckResult(NamedTuple):
    """The result of a check."""

    #: `"ok"`, `"warning"` or `"error"`.
    level: str
    #: One sentence without a full stop: "CANN's variables are not set".
    what: str
    #: The next command or step; empty where nothing is to be done.
    step: str = ""
    #: What was seen, by name.
    facts: Mapping[str, str] = MappingProxyType({})


class Fix(NamedTuple):
    """A repair for a check's finding; it runs only after the user agrees."""

    #: What it would do, as a clause that follows "it would": "write /etc/acme.conf".
    what: str
    #: Does it, in a child process, as the user who runs the command; it may raise. The check follows anew.
    #: It must be safe: it can be done twice, loses nothing of the user's, and installs nothing.
    apply: Callable[[], object]


class Check(NamedTuple):
    """One thing that a plugin looks into."""

    #: For scripts, in lower case with hyphens: `"cann-variables"`.
    name: str
    #: For people: "CANN's variables".
    title: str
    #: Looks, and changes nothing; called in a child process. All checks together have the time of one probe.
    run: Callable[[], CheckResult]
    #: What would mend it, where anything safe does.
    fix: Fix | None = None


hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a plugin's functions as implementations of the hooks below.
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
def accel_op_builders(backend: Backend) -> object:
    """Return op builders for `backend`: `{"FusedAdamBuilder": "module:Class"}`, or an `OpProvider`.

    Called on every installed plugin, and on the modules that entry points in group `accel.op_builders`
    name. `backend.device_type` is the device type that torch reports. `None` means that there are none.
    """


@hookspec(firstresult=True)
def accel_explain(backend: Backend, error: BaseException) -> str | ProbeResult | None:
    """Return the next step for a user who met `error` ("source CANN's set_env.sh"), or `None`.

    For what `Backend.hints` cannot say. A `ProbeResult(False, reason, hint)` also says what `error` means:
    "torch_npu 2.13.0 needs CANN, which is not installed". Every plugin is asked about every `backend`'s
    errors, the backend's own plugin first.
    """


@hookspec(firstresult=True)
def accel_checks(backend: Backend) -> Sequence[Check] | None:
    """Return what `accel doctor` is to look into for `backend`, each a `Check`; `None` means nothing.

    Of the backend's own plugin alone, in a child process. Neither torch nor the vendor is imported by then;
    a check may import them.
    """
