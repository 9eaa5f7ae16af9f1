"""Hooks that a plugin may implement: pluggy hook specifications.

An entry point in group `accel.backends` names a module whose functions carry
`hookimpl`. Importing that module must import neither torch nor the vendor's package.
Hooks run while an accelerator is found and built, never between the user and the
device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pluggy

from accel_core.backend import PROJECT, Backend, ProbeResult


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    #: `"ok"`: as it should be; `"warning"`: it works, and not as somebody would expect;
    #: `"error"`: it does not work.
    level: str
    #: One sentence without a full stop: "CANN's variables are not set".
    what: str
    #: The next command or step; empty if nothing is to be done.
    step: str = ""
    #: What the check found, by name.
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Fix:
    """A repair for the finding of a check; it runs only if the user agrees."""

    #: The repair, as a clause that follows "it would": "write /etc/acme.conf".
    what: str
    #: Repairs, in a child process, as the user who runs the command; it may raise. The
    #: check runs again after it. It must be safe: it can run twice, loses nothing of
    #: the user's, and installs nothing.
    apply: Callable[[], object]


@dataclass(frozen=True)
class Check:
    """One thing that a plugin examines for `accel doctor`."""

    #: For scripts, in lower case with hyphens: `"cann-variables"`.
    name: str
    #: For people: "CANN's variables".
    title: str
    #: Reads, and changes nothing; called in a child process. All checks together have
    #: the time of one probe.
    run: Callable[[], CheckResult]
    #: The repair, if there is a safe one.
    fix: Fix | None = None


hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a plugin's functions as implementations of the hooks below.
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def accel_backends() -> Backend | Sequence[Backend]:  # type: ignore[empty-body]
    """Return the `Backend` declarations of this plugin, one or several."""


@hookspec(firstresult=True)
def accel_probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Return whether `backend` is usable; `None` leaves that to the default probe.

    Called for the backend's own plugin only, after its declaration was checked and
    before torch or the vendor's package is imported; in the child process if the probe
    is isolated. `others` are the other installed backends. An exception means "not
    usable", with the exception as the reason.
    """


@hookspec(firstresult=True)
def accel_create(backend: Backend, others: tuple[Backend, ...]) -> object:
    """Return the `Accelerator` for `backend`; `None` means the class that
    `Backend.accelerator` names.

    torch and the vendor's package are already imported. Raise `DeclinedError` if the
    backend is not for this machine.
    """


@hookspec
def accel_op_builders(backend: Backend) -> object:
    """Return operator builders for `backend`: `{"FusedAdamBuilder": "module:Class"}`,
    or an `OpProvider`.

    Called for every installed plugin, and for the modules that entry points in group
    `accel.op_builders` name. `backend.device_type` is torch's name of the device.
    `None` means no builders.
    """


@hookspec(firstresult=True)
def accel_explain(backend: Backend, error: BaseException) -> str | ProbeResult | None:
    """Return the next step for a user who got `error` ("source CANN's set_env.sh"), or
    `None`.

    Use it if `Backend.hints` cannot express the step. A `ProbeResult(False, reason,
    hint)` also explains `error`: "torch_npu 2.13.0 needs CANN, which is not installed".
    Every plugin is called for the errors of every `backend`, the backend's own plugin
    first.
    """


@hookspec(firstresult=True)
def accel_checks(backend: Backend) -> Sequence[Check] | None:
    """Return the checks that `accel doctor` runs for `backend`, as `Check` objects;
    `None` means none.

    Called for the backend's own plugin only, in a child process that has imported
    neither torch nor the vendor's package; a check may import them.
    """
