"""Entry points to declarations: here, or in a child process that takes what a plugin does to it.

A plugin can end the process, crash or hang while it is imported. Where nobody minds a child process, one
loads all plugins and hands their declarations back: strings and numbers. If it dies, each plugin has
a child of its own, and the guilty one is `Unloaded` with how its child ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from accel_core._support import log
from accel_core._support.guest import Guest
from accel_core._support.quiet import stdout_to_stderr
from accel_core._text import clean
from accel_core.backend import Backend, Provenance
from accel_core.detection.entry_points import EntryPoint
from accel_core.detection.plugin import Unimported, declarations
from accel_core.detection.records import CAUGHT, Candidate, Outcome, Status, Unloaded, root_cause
from accel_core.errors import InvalidBackendError
from accel_core.machine import host
from accel_core.settings import normalize_distribution

if TYPE_CHECKING:
    from accel_core._support.child import ChildReport

__all__ = [
    "Apart", "Load", "as_json", "death", "declare_in_child", "failure", "load", "load_here", "name_of",
    "no_child", "of_json", "origin", "provenance",
]  # fmt: skip

#: What each entry point declares, in their order.
Load = Callable[[Sequence[EntryPoint]], "list[tuple[Candidate | Unloaded, ...]]"]


# --- In this process -----------------------------------------------------------------------------------


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
    log.say(f"load the plugin {entry_point.value} of {source}")
    importing, declaring = _steps(entry_point)
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
        return (_unloaded(entry_point, failure(entry_point, error)),)
    unique = {(b.name, b.priority): b._declared_by(source) for b in backends}
    return tuple(Candidate(backend, plugin) for backend in unique.values())


def _steps(entry_point: EntryPoint) -> tuple[str, str]:
    """What loading a plugin consists of, for those who ask where one died."""
    source = provenance(entry_point)
    return f"import of {clean(entry_point.value)}, the plugin of {source}", f"accel_backends() of {source}"


def load_here(entry_points: Sequence[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
    """What each of them declares, imported into this process."""
    guest = Guest()
    return [load(entry_point, guest=guest) for entry_point in entry_points]


def name_of(entry_point: EntryPoint) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return clean(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def provenance(entry_point: EntryPoint) -> Provenance:
    """Where the entry point comes from, as messages name it."""
    # Folder names and metadata may hold anything, and these go into every message.
    distribution, version = clean(entry_point.distribution), clean(entry_point.version)
    return Provenance(distribution, version, entry_point.name, entry_point.value)


def failure(entry_point: EntryPoint, error: BaseException) -> Outcome:
    """What it means that loading the plugin raised `error`."""
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    if isinstance(error, InvalidBackendError):
        hint = error.hint or f"report this to the maintainers of {entry_point.distribution}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    return Outcome(
        Status.BROKEN,
        f"the plugin failed to load: {root_cause(error)} ({at})",
        f"pip install --force-reinstall {entry_point.distribution}, or pip uninstall it",
        error=error,
    )


def origin(candidate: Candidate | Unloaded) -> EntryPoint:
    """The entry point that the candidate was read from."""
    source = candidate.provenance
    return EntryPoint(source.entry_point, source.value, source.distribution, source.version)


# --- In child processes --------------------------------------------------------------------------------


class Apart:
    """Loads plugins in child processes, each once, and imports none of them here.

    The candidates' plugins are `Unimported`. `timeout`: seconds for each plugin's import and for each
    `accel_backends()`, the first counted from the child's first sign of life.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._known: dict[EntryPoint, tuple[Candidate | Unloaded, ...]] = {}

    def __call__(self, entry_points: Sequence[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        """What each of them declares."""
        new = [e for e in dict.fromkeys(entry_points) if e not in self._known]
        if new:
            self._known.update(zip(new, self._load(new), strict=True))
        return [self._known[e] for e in entry_points]

    def _load(self, entry_points: list[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        log.say(f"load {len(entry_points)} plugins in a child process")
        together = self._in_child(entry_points)
        if isinstance(together, list):
            return together
        guilty = together
        left = [e for e in entry_points if e not in guilty]
        from accel_core._support import child

        def alone(entry_point: EntryPoint) -> tuple[Candidate | Unloaded, ...]:
            found = self._in_child([entry_point])
            return found[0] if isinstance(found, list) else (found[entry_point],)

        found = dict(zip(left, child.each(alone, left, host.usable_cores()), strict=True)) if left else {}
        return [(guilty[e],) if e in guilty else found[e] for e in entry_points]

    def _in_child(
        self, entry_points: list[EntryPoint]
    ) -> list[tuple[Candidate | Unloaded, ...]] | dict[EntryPoint, Unloaded]:
        """What each declares; where the child did not live, of whom it is known that this is their doing.

        Of several it is known who hangs, which need not be waited for once more. Who died may have died of
        another's thread, or patch.
        """
        from accel_core._support import child

        try:
            job: dict[str, object] = {"entry_points": list(map(list, entry_points))}
            report = child.run(declare_in_child, job, self._timeout, each_stage=True)
        except OSError as error:
            outcome = no_child("load its plugin", error)
            return {e: _unloaded(e, outcome) for e in entry_points}
        if report.answer is not None:
            told: Any = report.answer["plugins"]
            report.pass_on()
            return [_read(e, rows) for e, rows in zip(entry_points, told, strict=True)]
        if len(entry_points) == 1:
            guilty = entry_points
        else:
            guilty = [e for e in entry_points if report.timed_out and report.stage == _steps(e)[0]]
        return {e: _unloaded(e, _ended(e, report, self._timeout)) for e in guilty}


def _ended(entry_point: EntryPoint, report: ChildReport, timeout: float) -> Outcome:
    mend = f"report this to the maintainers of {clean(entry_point.distribution)}"
    return death(report, timeout, "loaded its plugin", mend, name_of(entry_point))


def _unloaded(entry_point: EntryPoint, outcome: Outcome) -> Unloaded:
    return Unloaded(name_of(entry_point), provenance(entry_point), outcome)


def no_child(purpose: str, error: OSError) -> Outcome:
    """The outcome where no child can be started."""
    hint = "unset ACCEL_PROBE to probe in this process" if os.environ.get("ACCEL_PROBE") else ""
    return Outcome(Status.CRASHED, f"no process could be started to {purpose}: {error}", hint, error=error)


def death(report: ChildReport, timeout: float, did: str, mend: str, name: str) -> Outcome:
    """The outcome of a child that `did` something and gave no answer; `mend`: what to do, beside a block."""
    hint = f"{mend}, or set ACCEL_BLOCK={name}"
    if report.timed_out:
        reason = f"no answer within {timeout:g} s; it was at: {report.stage}"
        return Outcome(Status.TIMED_OUT, reason, hint)
    last_line = f"; last words: {report.stderr.splitlines()[-1]}" if report.stderr else ""
    reason = f"the process that {did} {report.ending} at: {report.stage}{last_line}"
    return Outcome(Status.CRASHED, reason, hint)


def declare_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load each entry point; what each declares, or why it cannot be loaded."""
    loaded = [load(EntryPoint(*fields), stage) for fields in job["entry_points"]]
    return {"plugins": [list(map(_told, candidates)) for candidates in loaded]}


def _told(candidate: Candidate | Unloaded) -> dict[str, object]:
    if isinstance(candidate, Candidate):
        return {"backend": as_json(candidate.backend)}
    return {"outcome": candidate.outcome.to_dict()}


def _read(entry_point: EntryPoint, rows: list[dict[str, Any]]) -> tuple[Candidate | Unloaded, ...]:
    """What the child told of one plugin; declarations are checked as any are."""
    source, plugin = provenance(entry_point), Unimported(entry_point)
    try:
        return tuple(
            Candidate(of_json(row["backend"])._declared_by(source), plugin)
            if "backend" in row
            else _unloaded(entry_point, Outcome.of_dict(row["outcome"]))
            for row in rows
        )
    except (InvalidBackendError, KeyError, TypeError, ValueError) as error:
        wrong = error if isinstance(error, InvalidBackendError) else InvalidBackendError(root_cause(error))
        return (_unloaded(entry_point, failure(entry_point, wrong)),)


def as_json(backend: Backend) -> dict[str, object]:
    """The declaration as JSON can hold it, without its provenance and without what is left at its default."""
    fields = [name for name in Backend.__annotations__ if name != "provenance"]
    return {
        name: value
        for name in fields
        if (value := getattr(backend, name)) != getattr(Backend, name, None) or not hasattr(Backend, name)
    }


def of_json(told: dict[str, Any]) -> Backend:
    """The declaration that `as_json` wrote; raises `InvalidBackendError` where it is none."""
    return Backend(**{name: _tuples(value) for name, value in told.items()})


def _tuples(value: object) -> Any:
    """Lists, as which tuples come through JSON, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
