"""One step in a child process: plugins' declarations are read there, a backend is probed there.

A plugin or a vendor's package can end the process, crash or hang while it is imported. The child takes that:
its end, whatever it is, is an outcome. What goes in and comes back is JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accel_core import machine
from accel_core._support.packages import EntryPoint, entry_points
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.detection import Candidate, Outcome, Status, Unloaded, discovery
from accel_core.detection.device import Group, ask_device, report_to
from accel_core.detection.discovery import (
    Unimported,
    decode_backend,
    encode_backend,
    provenance,
    unloaded,
)
from accel_core.detection.guard import announcing_to
from accel_core.errors import InvalidBackendError, clean, root_cause, root_place
from accel_core.settings import read

if TYPE_CHECKING:
    from accel_core._support.child import ChildReport

_log = logging.getLogger(__name__)

#: What plugins declare, or why they cannot be loaded.
Plugins = dict[EntryPoint, tuple[Candidate | Unloaded, ...]]


# --- Declarations --------------------------------------------------------------------------------------


class IsolatedLoader:
    """Reads plugins' declarations in child processes, each once; none is imported here.

    One child loads all plugins. Each that fails there, or has no answer as the child died, is loaded alone in
    another. The candidates' plugins are `Unimported`. `timeout`: seconds for a child.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._known: Plugins = {}

    def __call__(self, entry_points: Sequence[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        """Return the declarations of each."""
        new = [e for e in dict.fromkeys(entry_points) if e not in self._known]
        if new:
            from accel_core._support import child  # here, as there may be no plugin

            _log.info("load %s plugins in a child process", len(new))
            found = self._in_child(new)
            left = [e for e in new if len(new) > 1 and _fails(found.get(e, ()))]
            alone = child.each(lambda e: self._in_child([e])[e], left, machine.usable_cores()) if left else ()
            for entry_point, rows in zip(left, alone, strict=True):
                together = () if _fails(rows) else found.get(entry_point, ())
                found[entry_point] = tuple(map(_beside_others, together)) or rows
            self._known |= found
        return [self._known[e] for e in entry_points]

    def _in_child(self, entry_points: list[EntryPoint]) -> Plugins:
        """Return what each declares; nothing if the child died with several, as any may be to blame."""
        from accel_core._support import child

        job: dict[str, object] = {"entry_points": list(map(list, entry_points))}
        try:
            report = child.run(_declare_in_child, job, self._timeout)
        except OSError as error:
            return {e: (unloaded(e, _no_child("load its plugin", error)),) for e in entry_points}
        if report.answer is not None:
            declared: Any = report.answer["plugins"]
            report.pass_on()
            return {e: _decode_plugin(e, rows) for e, rows in zip(entry_points, declared, strict=True)}
        if len(entry_points) > 1:
            return {}
        (e,) = entry_points
        step = f"report this to the maintainers of {clean(e.distribution)}"
        return {e: (unloaded(e, _ended(report, "loaded its plugin", step, discovery.name_of(e))),)}


def _fails(rows: tuple[Candidate | Unloaded, ...]) -> bool:
    return not rows or any(isinstance(c, Unloaded) and c.outcome.status is Status.BROKEN for c in rows)


def _beside_others(failed: Candidate | Unloaded) -> Candidate | Unloaded:
    """The plugin that fails beside the others, as in a process that loads them all, and alone does not."""
    if isinstance(failed, Candidate):
        return failed
    reason = f"{failed.outcome.reason}; it loads alone, so another plugin is to blame"
    hint = "to find that one, name the other plugins in ACCEL_BLOCK, one at a time"
    return replace(failed, outcome=failed.outcome._replace(reason=reason, hint=hint))


def _declare_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load each entry point; what each declares, or why it cannot be loaded."""
    with announcing_to(stage):
        loaded = [discovery.load(EntryPoint(*fields)) for fields in job["entry_points"]]
    return {"plugins": [list(map(encode_candidate, candidates)) for candidates in loaded]}


def _decode_plugin(entry_point: EntryPoint, rows: list[dict[str, Any]]) -> tuple[Candidate | Unloaded, ...]:
    """Decode what a child read from one plugin; its declarations are checked like all others."""
    source, plugin = provenance(entry_point), Unimported(entry_point)
    try:
        return tuple(
            Candidate(decode_backend(row["backend"])._declared_by(source), plugin)
            if "backend" in row
            else unloaded(entry_point, _decode_outcome(row["outcome"]))
            for row in rows
        )
    except (InvalidBackendError, KeyError, TypeError, ValueError) as error:
        wrong = error if isinstance(error, InvalidBackendError) else InvalidBackendError(root_cause(error))
        return (unloaded(entry_point, discovery.failure(entry_point, wrong)),)


# --- A probe -------------------------------------------------------------------------------------------


def probe_isolated(candidate: Candidate, group: Group, timeout: float, *, pinned: bool) -> Outcome:
    """Ask the plugin and the device in a child process, whose end is an ordinary outcome."""
    from accel_core._support import child

    others = [c for c in group.candidates if isinstance(c, Candidate) and c is not candidate]
    job: dict[str, object] = {
        "candidate": encode_candidate(candidate),
        "others": list(map(encode_candidate, others)),
        "refused": [c.name for c in group.refused()],
        "pinned": pinned,
    }
    _log.info("try %s in a child process", candidate)
    try:
        report = child.run(_probe_in_child, job, timeout)
    except OSError as error:
        return _no_child("probe it", error)
    if report.answer is not None:
        return _decode_outcome(report.answer)
    step = report_to(candidate, report.stage) or "reinstall the vendor's package"
    return _ended(report, "probed it", step, candidate.name)


def _probe_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: import the candidate's plugin, and no other, and ask it and its device."""
    with announcing_to(stage):
        candidate = decode_candidate(job["candidate"])
        loaded = candidate if candidate.builtin else _loaded_again(candidate)
        return _encode_outcome(loaded if isinstance(loaded, Outcome) else _ask(loaded, job))


def _ask(candidate: Candidate, job: dict[str, Any]) -> Outcome:
    others = [
        replace(other, plugin=candidate.plugin) if other.provenance == candidate.provenance else other
        for other in map(decode_candidate, job["others"])
    ]
    blocked = Outcome(Status.BLOCKED)
    refused = [Unloaded(name, Provenance("", ""), blocked) for name in job["refused"]]
    group = Group((candidate, *others, *refused), importing=True)
    return ask_device(candidate, group, pinned=bool(job["pinned"]))


def _loaded_again(candidate: Candidate) -> Candidate | Outcome:
    """The same candidate with its plugin loaded; or why it is missing here."""
    installed = entry_points(ENTRY_POINT_GROUP)
    entry_point = next((e for e in installed if provenance(e) == candidate.provenance), None)
    for found in discovery.load(entry_point) if entry_point is not None else ():
        if isinstance(found, Unloaded):
            return found.outcome
        if (found.name, found.priority) == (candidate.name, candidate.priority):
            return found
    return Outcome(Status.BROKEN, "the probing process did not find the plugin")


# --- How a child ends ----------------------------------------------------------------------------------


def _no_child(purpose: str, error: OSError) -> Outcome:
    """The outcome where no child can be started."""
    hint = "unset ACCEL_PROBE to probe in this process" if read().isolated else ""
    return Outcome(Status.CRASHED, f"no process could be started to {purpose}: {error}", hint, error=error)


def _ended(report: ChildReport, did: str, step: str, name: str) -> Outcome:
    """The outcome of a child that `did` something and gave no answer; `step`: what helps against a crash."""
    if report.timed_out:  # which says nothing of the package
        reason = f"no answer within {report.waited:g} s; it was at: {report.stage}"
        return Outcome(Status.TIMED_OUT, reason, f"raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK={name}")
    reason = f"the process that {did} {report.ending} at: {report.stage}{report.last_words}"
    return Outcome(Status.CRASHED, reason, f"{step}, or set ACCEL_BLOCK={name}")


# --- Records as JSON -----------------------------------------------------------------------------------


def encode_candidate(candidate: Candidate | Unloaded) -> dict[str, object]:
    """A candidate without its plugin, which each process imports for itself; of one without, its outcome."""
    if isinstance(candidate, Unloaded):
        return {"outcome": _encode_outcome(candidate.outcome)}
    return {"backend": encode_backend(candidate.backend), "provenance": list(candidate.provenance)}


def decode_candidate(given: Mapping[str, Any]) -> Candidate:
    """The candidate that `encode_candidate` wrote; its plugin is imported when it is needed.

    Raises `InvalidBackendError` where the declaration is none.
    """
    source = Provenance(*given["provenance"])
    origin = EntryPoint(source.entry_point, source.value, source.distribution, source.version)
    candidate = Candidate(decode_backend(given["backend"])._declared_by(source), Unimported(origin))
    return replace(candidate, plugin=None) if candidate.builtin else candidate


def _encode_outcome(outcome: Outcome) -> dict[str, object]:
    """Encode an outcome; of its error, the texts that people read."""
    error = outcome.error
    raised = {"cause": root_cause(error), "where": root_place(error)} if error else {}
    return {**outcome._asdict(), "status": outcome.status.value, "error": None, **raised}


def _decode_outcome(given: Mapping[str, Any]) -> Outcome:
    """The outcome that `_encode_outcome` wrote; raises `KeyError`, `TypeError` or `ValueError` for others."""
    return Outcome(**{**given, "status": Status(given["status"])})
