"""An entry point to a plugin's declarations, in this process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from accel_core._support.guest import Guest
from accel_core._support.quiet import stdout_to_stderr
from accel_core._text import clean
from accel_core._version import __version__
from accel_core.detection.entry_points import EntryPoint, name_of, provenance
from accel_core.detection.plugin import declarations
from accel_core.detection.records import CAUGHT, Candidate, Outcome, Status, Unloaded, root_cause
from accel_core.errors import InvalidBackendError, root

if TYPE_CHECKING:
    from accel_core.backend import Provenance
    from accel_core.detection.notes import Death

__all__ = [
    "Load",
    "failure",
    "is_of_another_core",
    "load",
    "of_another_core",
    "steps",
    "tried_apart",
    "unloaded",
]

_log = logging.getLogger(__name__)

#: What each entry point declares, in their order.
Load = Callable[[Sequence[EntryPoint]], "list[tuple[Candidate | Unloaded, ...]]"]


def load(
    entry_point: EntryPoint, step: Callable[[str], None] = lambda _: None, guest: Guest | None = None
) -> tuple[Candidate | Unloaded, ...]:
    """Import one plugin's module and read its declarations; `step` is told of each before it begins.

    What the plugin prints goes to stderr: stdout belongs to the program that is running. `guest` serves
    several plugins.
    """
    source = provenance(entry_point)
    guest = guest or Guest()
    guest.who = source
    _log.info("load the plugin %s of %s", entry_point.value, source)
    importing, declaring = steps(entry_point)
    step(importing)
    try:
        with stdout_to_stderr(), guest:
            if not entry_point.name:
                raise InvalidBackendError("the entry point has no name, expected that of its backend")
            if not entry_point.module:
                raise InvalidBackendError(
                    "the entry point's value names no module, expected e.g. 'accel_npu'"
                )
            plugin = entry_point.load()
            step(declaring)
            backends = declarations(plugin)
    except CAUGHT as error:
        return (unloaded(entry_point, failure(entry_point, error)),)
    unique = {(b.name, b.priority): b._declared_by(source) for b in backends}
    return tuple(Candidate(backend, plugin) for backend in unique.values())


def steps(entry_point: EntryPoint) -> tuple[str, str]:
    """What loading a plugin consists of, for those who ask where one died."""
    source = provenance(entry_point)
    return f"import of {clean(entry_point.value)}, the plugin of {source}", f"accel_backends() of {source}"


def tried_apart(name: str, source: Provenance, death: Death) -> str:
    """For people: why a child process came first, though nobody had asked for that."""
    return f"{name} ({source}) was tried in a child process first: {death}"


def failure(entry_point: EntryPoint, error: BaseException) -> Outcome:
    """What it means that loading the plugin raised `error`."""
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    if isinstance(error, InvalidBackendError):
        hint = error.hint or f"report this to the maintainers of {entry_point.distribution}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    if is_of_another_core(error):
        return of_another_core(error, at)
    return Outcome(
        Status.BROKEN,
        f"the plugin failed to load: {root_cause(error)} ({at})",
        f"pip install --force-reinstall {entry_point.distribution}, or pip uninstall it",
        error=error,
    )


def is_of_another_core(error: BaseException) -> bool:
    """Whether a chain begins with a name or a module that was asked of accel_core, which has none such."""
    error = root(error)
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "accel_core"
    return isinstance(error, AttributeError) and error.obj is sys.modules["accel_core"]


def of_another_core(error: BaseException, at: str) -> Outcome:
    """What it means that a plugin asks accel_core for a name that it does not have."""
    reason = f"it needs another accel-core than {__version__}: {root_cause(error)} ({at})"
    return Outcome(Status.INCOMPATIBLE, reason, "pip install --upgrade accel-core", error=error)


def unloaded(entry_point: EntryPoint, outcome: Outcome) -> Unloaded:
    """The plugin of which nothing could be read, and why."""
    return Unloaded(name_of(entry_point), provenance(entry_point), outcome)
