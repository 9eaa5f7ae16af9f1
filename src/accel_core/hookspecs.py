"""The hooks that a plugin may implement, as pluggy hook specifications.

An entry point in group `accel.backends` names a module whose functions are marked with
`hookimpl`. Importing that module must import neither torch nor the vendor's package.
Hooks run while an accelerator is being chosen and built. `accel_op_builders` runs when
an operator is requested, and `accel_checks` in `accel doctor`. No other call to the
accelerator runs a hook.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pluggy

from accel_core.backend import PROJECT, Backend, ProbeResult


@dataclass(frozen=True)
class CheckResult:
    """The result of one `accel doctor` check."""

    #: `"ok"`; `"warning"` if the device works, but not as a user would expect; or
    #: `"error"` if the device does not work.
    level: str
    #: The finding as one sentence without a period, such as "CANN's variables are not
    #: set".
    what: str
    #: The user's next step, such as a command, or an empty string if there is nothing
    #: to do.
    step: str = ""
    #: The values that the check read, by name.
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Fix:
    """A repair for the problem that an `accel doctor` check reports. The repair runs only
    if the user agrees.
    """

    #: The repair as a clause that follows "it would", such as "write /etc/acme.conf".
    what: str
    #: Runs the repair in a child process, as the user who runs the command, and may
    #: raise an exception. The check runs again after the repair. The repair must be
    #: safe: it can run twice, deletes no data of the user, and installs nothing.
    apply: Callable[[], object]


@dataclass(frozen=True)
class Check:
    """A check that a plugin adds to `accel doctor`."""

    #: The check's name for scripts, in lower case with hyphens, such as
    #: `"cann-variables"`.
    name: str
    #: The check's title for people, such as "CANN's variables".
    title: str
    #: Runs the check, without changing anything. It is called in a child process. All
    #: checks of a backend together have the timeout of one probe.
    run: Callable[[], CheckResult]
    #: The repair, if there is a safe repair.
    fix: Fix | None = None


hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a plugin's functions as implementations of the hooks below.
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def accel_backends() -> Backend | Sequence[Backend]:  # type: ignore[empty-body]
    """Return this plugin's `Backend` declarations: one declaration, or a sequence of them."""


@hookspec(firstresult=True)
def accel_probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Return whether `backend` is usable, or `None` to leave the answer to the default probe.

    This hook is called only for the plugin that declares the backend. At that time, the
    declaration has been checked, but neither torch nor the vendor's package has been
    imported. If the probe is isolated, the hook is called in the child process.
    `others` are the other installed backends. An exception means that the backend is
    not usable, with the exception as the reason.
    """


@hookspec(firstresult=True)
def accel_create(backend: Backend, others: tuple[Backend, ...]) -> object:
    """Return the `Accelerator` for `backend`, or `None` to use the class that
    `Backend.accelerator` names.

    torch and the vendor's package are already imported. Raise `DeclinedError` if the
    backend does not suit this machine.
    """


@hookspec
def accel_op_builders(backend: Backend) -> object:
    """Return operator builders for `backend`, such as `{"FusedAdamBuilder":
    "module:Class"}`, or an `OpProvider`. Return `None` if there are no builders.

    This hook is called for every installed plugin, and for every module that an entry
    point in group `accel.op_builders` names. `backend.device_type` is the torch device
    type.
    """


@hookspec(firstresult=True)
def accel_explain(backend: Backend, error: BaseException) -> str | ProbeResult | None:
    """Return the next step for a user who got `error`, such as "source CANN's
    set_env.sh", or `None` if the plugin knows none.

    Implement this hook if `Backend.hints` cannot express the next step. To state the
    cause of `error` too, return a `ProbeResult(False, reason, hint)` with a reason such
    as "torch_npu 2.13.0 needs CANN, which is not installed". Plugins are called until
    one returns a result; the backend's own plugin is called first.
    """


@hookspec(firstresult=True)
def accel_checks(backend: Backend) -> Sequence[Check] | None:
    """Return the checks that `accel doctor` runs for `backend`, or `None` if there are no checks.

    This hook is called only for the plugin that declares the backend, in a child
    process that has imported neither torch nor the vendor's package. The checks
    themselves may import them.
    """
