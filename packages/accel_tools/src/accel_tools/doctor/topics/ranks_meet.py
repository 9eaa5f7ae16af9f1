"""Whether ranks on this host meet over gloo; only with `--ranks`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from accel_tools.doctor.experiments import meeting
from accel_tools.doctor.experiments.cases import not_proven
from accel_tools.doctor.experiments.search import Search
from accel_tools.doctor.experiments.trial import Outcome
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["topic"]


def topic(count: int, seconds: float) -> Topic:
    """Return the topic that lets `count` ranks meet; its experiments take `seconds`."""
    return Topic("ranks", "Ranks", partial(_examine, count, seconds))


def _examine(count: int, seconds: float, visit: Visit) -> Iterator[Finding]:
    job = meeting.Job(count, meeting.environment(), visit.settings.probe_timeout)
    failed = meeting.run(job)
    if failed.is_well:
        what = f"{count} ranks on this host meet over gloo"
        yield Finding(Level.OK, "ranks.met", what)
        return
    what = f"{count} ranks on this host do not meet over gloo, at {failed.stage}: {failed.error}"
    finding = Finding(Level.ERROR, "ranks.not-met", what)
    if seconds:
        finding = _with_proof(job, failed, finding, seconds)
    yield finding


def _with_proof(
    job: meeting.Job, failed: Outcome, finding: Finding, seconds: float
) -> Finding:
    search = Search(
        partial(meeting.run, job),
        lambda outcome: outcome.is_well,
        time.monotonic() + seconds,
    )
    # Interfaces exclude each other: they are tried one by one, never together.
    found = search.first_of(list(meeting.rows(job)))
    if not found.causes:
        return finding._replace(proof="; ".join(not_proven(found)))
    [cause] = found.causes
    step = cause.step(failed)
    return finding._replace(proof=f"Proven: {cause} they meet", step=step)
