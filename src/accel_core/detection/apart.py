"""Entry points to declarations, in child processes that take what a plugin does to them.

A plugin can end the process, crash or hang while it is imported. Where nobody minds a child process, one
loads all plugins and hands their declarations back: strings and numbers. If it dies, each plugin has a child
of its own, and the guilty one is `Unloaded` with how its child ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from accel_core._text import clean
from accel_core.detection import passing
from accel_core.detection.entry_points import EntryPoint, name_of, provenance
from accel_core.detection.loading import failure, load, steps, unloaded
from accel_core.detection.plugin import Unimported
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded, root_cause
from accel_core.errors import InvalidBackendError
from accel_core.machine import host
from accel_core.settings import read

if TYPE_CHECKING:
    from accel_core._support.child import ChildReport

__all__ = ["Apart", "declare_in_child", "ended", "no_child"]

_log = logging.getLogger(__name__)


class Apart:
    """Loads plugins in child processes, each once, and imports none of them here.

    The candidates' plugins are `Unimported`. `timeout`: seconds for each plugin's import and for each
    `accel_backends()`, the first counted from the child's first sign of life. `meanwhile` is called while
    the first child starts: what else the caller has to import costs nothing then.
    """

    def __init__(self, timeout: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._timeout = timeout
        self._meanwhile = meanwhile
        self._known: dict[EntryPoint, tuple[Candidate | Unloaded, ...]] = {}

    def __call__(self, entry_points: Sequence[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        """What each of them declares."""
        new = [e for e in dict.fromkeys(entry_points) if e not in self._known]
        if new:
            self._known.update(zip(new, self._load(new), strict=True))
        return [self._known[e] for e in entry_points]

    def _load(self, entry_points: list[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        from accel_core._support import child  # here, as there may be no plugin

        _log.info("load %d plugins in a child process", len(entry_points))
        together = self._in_child(entry_points)
        if isinstance(together, list):
            return together
        guilty = together
        left = [e for e in entry_points if e not in guilty]

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
            report = child.run(
                declare_in_child, job, self._timeout, each_stage=True, meanwhile=self._meanwhile
            )
        except OSError as error:
            outcome = no_child("load its plugin", error)
            return {e: unloaded(e, outcome) for e in entry_points}
        if report.answer is not None:
            told: Any = report.answer["plugins"]
            report.pass_on()
            return [_read(e, rows) for e, rows in zip(entry_points, told, strict=True)]
        if len(entry_points) == 1:
            guilty = entry_points
        else:
            guilty = [e for e in entry_points if report.timed_out and report.stage == steps(e)[0]]
        return {e: unloaded(e, _ended(e, report, self._timeout)) for e in guilty}


def _ended(entry_point: EntryPoint, report: ChildReport, timeout: float) -> Outcome:
    mend = f"report this to the maintainers of {clean(entry_point.distribution)}"
    return ended(report, timeout, "loaded its plugin", mend, name_of(entry_point))


def no_child(purpose: str, error: OSError) -> Outcome:
    """The outcome where no child can be started."""
    hint = "unset ACCEL_PROBE to probe in this process" if read().isolated else ""
    return Outcome(Status.CRASHED, f"no process could be started to {purpose}: {error}", hint, error=error)


def ended(report: ChildReport, timeout: float, did: str, mend: str, name: str) -> Outcome:
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
    return {"plugins": [list(map(passing.told, candidates)) for candidates in loaded]}


def _read(entry_point: EntryPoint, rows: list[dict[str, Any]]) -> tuple[Candidate | Unloaded, ...]:
    """What the child told of one plugin; declarations are checked as any are."""
    source, plugin = provenance(entry_point), Unimported(entry_point)
    try:
        return tuple(
            Candidate(passing.backend(row["backend"])._declared_by(source), plugin)
            if "backend" in row
            else unloaded(entry_point, passing.outcome(row["outcome"]))
            for row in rows
        )
    except (InvalidBackendError, KeyError, TypeError, ValueError) as error:
        wrong = error if isinstance(error, InvalidBackendError) else InvalidBackendError(root_cause(error))
        return (unloaded(entry_point, failure(entry_point, wrong)),)
