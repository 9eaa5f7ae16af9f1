"""One step in a child process: plugins' declarations are read there, a backend is probed there.

A plugin or a vendor's package can end the process, crash or hang while it is imported. The child takes that:
its end, whatever it is, is an outcome. What goes in and comes back is JSON.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accel_core import hardware, torch_import
from accel_core.backend import Provenance, decode_backend
from accel_core.detection import Candidate, Judged, Outcome, Ranked, Status, Unloaded, discovery
from accel_core.detection.device import Group, ask_device, report_to
from accel_core.detection.discovery import unloaded
from accel_core.log import LOGGER
from accel_core.sandbox.guard import selection_in_progress, steps_to
from accel_core.settings import read

#: What plugins declare, or why they cannot be loaded.
Plugins = dict[Provenance, Ranked]


# --- Declarations --------------------------------------------------------------------------------------


class IsolatedLoader:
    """Reads plugins' declarations in child processes, each once; none is imported here.

    One child loads all plugins. Each that fails there, or has no answer as the child died, is loaded alone in
    another. A plugin is imported here when one of its hooks is called. `timeout`: seconds for a child.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._known: Plugins = {}

    def __call__(self, entry_points: Sequence[Provenance]) -> list[Ranked]:
        """Return the declarations of each."""
        if new := [e for e in dict.fromkeys(entry_points) if e not in self._known]:
            from accel_core.sandbox import child  # here, as where no plugin is installed none starts

            LOGGER.debug("load %s plugins in a child process", len(new))
            found = self._in_child(new)
            left = [e for e in new if len(new) > 1 and _fails(found.get(e, ()))]
            alone = (
                child.each(lambda e: self._in_child([e])[e], left, hardware.usable_cores()) if left else ()
            )
            for entry_point, rows in zip(left, alone, strict=True):
                together = () if _fails(rows) else found.get(entry_point, ())
                found[entry_point] = tuple(map(_beside_others, together)) or rows
            self._known |= found
        return [self._known[e] for e in entry_points]

    def _in_child(self, entry_points: list[Provenance]) -> Plugins:
        """Return what each declares; nothing if the child died with several, as any may be to blame."""
        first = entry_points[0]
        job: dict[str, object] = {"entry_points": entry_points}
        report = _run(_declare_in_child, job, self._timeout, unloaded(first, Outcome(Status.NOT_PROBED)))
        if isinstance(report, Outcome):
            return {first: (unloaded(first, report),)} if len(entry_points) == 1 else {}
        report.print_output()
        declared: Any = report.answer
        read = (tuple(map(_decode, rows)) for rows in declared["plugins"])
        return dict(zip(entry_points, read, strict=True))


def _fails(rows: Ranked) -> bool:
    return not rows or any(isinstance(c, Unloaded) and c.outcome.status is Status.BROKEN for c in rows)


def _beside_others(failed: Judged) -> Judged:
    """The plugin that fails beside the others, as in a process that loads them all, and alone does not."""
    assert isinstance(failed, Unloaded)
    reason = f"{failed.outcome.reason}; it loads alone, so another plugin is to blame"
    hint = "to find that one, name the other plugins in ACCEL_BLOCK, one at a time"
    return Unloaded(failed.name, failed.provenance, failed.outcome._replace(reason=reason, hint=hint))


def _declare_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load each entry point; what each declares, or why it cannot be loaded."""
    with steps_to(stage), selection_in_progress():
        loaded = [discovery.load_plugin(Provenance(*fields)) for fields in job["entry_points"]]
    return {"plugins": [list(map(_encode, candidates)) for candidates in loaded]}


# --- A probe -------------------------------------------------------------------------------------------


def probe_isolated(candidate: Candidate, group: Group, timeout: float, *, pinned: bool) -> Outcome:
    """Ask the plugin and the device in a child process, which imports no other plugin but for a hint."""
    others = [c for c in group.candidates if c is not candidate]
    job: dict[str, object] = {"candidates": list(map(_encode, [candidate, *others])), "pinned": pinned}
    LOGGER.debug("try %s in a child process", candidate)
    report = _run(_probe_in_child, job, timeout, candidate)
    return report if isinstance(report, Outcome) else _decode_outcome(report.answer or {})


def _probe_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    candidate, *others = map(_decode, job["candidates"])
    assert isinstance(candidate, Candidate)
    with steps_to(stage), selection_in_progress():
        group = Group((candidate, *others), importing=True)
        outcome = ask_device(candidate, group, pinned=job["pinned"])
        slot = torch_import.private_use1_name() if "torch" in sys.modules else ""
        return _encode_outcome(outcome._replace(slot=slot))


def _run(function: Callable[..., object], job: dict[str, object], timeout: float, candidate: Judged) -> Any:
    """Run the child that asks a backend: its report, or what an end without an answer means."""
    from accel_core.sandbox import child

    try:
        report = child.run(function, job, timeout)
    except OSError as error:
        hint = "unset ACCEL_PROBE to probe in this process" if read().isolated else ""
        return Outcome(Status.CRASHED, f"no process could be started to ask it: {error}", hint, error=error)
    if report.answer is not None:
        return report
    if report.timed_out:  # which says nothing of the package
        reason = f"no answer within {report.waited:g} s; it was at: {report.stage}"
        step = "raise ACCEL_PROBE_TIMEOUT"
        return Outcome(Status.TIMED_OUT, reason, f"{step}, or set ACCEL_BLOCK={candidate.name}")
    did = "loaded its plugin" if isinstance(candidate, Unloaded) else "probed it"
    reason = f"the process that {did} {report.ending} at: {report.stage}{report.last_words}"
    step = report_to(candidate.distribution, report.stage) or "reinstall the vendor's package"
    return Outcome(Status.CRASHED, reason, f"{step}, or set ACCEL_BLOCK={candidate.name}", fatal=True)


# --- Records as JSON -----------------------------------------------------------------------------------


def _encode(candidate: Judged) -> dict[str, object]:
    """A candidate without its plugin, which each process imports for itself."""
    if isinstance(candidate, Candidate):
        return {"backend": candidate.backend._asdict(), "builtin": candidate.builtin}
    return {**vars(candidate), "outcome": _encode_outcome(candidate.outcome)}


def _decode(given: Mapping[str, Any]) -> Judged:
    if "outcome" not in given:
        return Candidate(decode_backend(given["backend"]), builtin=given["builtin"])
    return Unloaded(given["name"], Provenance(*given["provenance"]), _decode_outcome(given["outcome"]))


def _encode_outcome(outcome: Outcome) -> dict[str, object]:
    return {**outcome.told._asdict(), "status": outcome.status.value, "error": None, "accelerator": None}


def _decode_outcome(given: Mapping[str, Any]) -> Outcome:
    """The outcome that `_encode_outcome` wrote; raises `KeyError`, `TypeError` or `ValueError` for others."""
    return Outcome(**{**given, "status": Status(given["status"])})
