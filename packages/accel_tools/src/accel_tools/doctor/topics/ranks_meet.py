"""Check that ranks on this host can connect over gloo; runs only with `--ranks`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from accel_tools.doctor.experiments import meeting
from accel_tools.doctor.experiments.cases import not_proven
from accel_tools.doctor.experiments.search import Search
from accel_tools.doctor.experiments.trial import Outcome
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_train.launch.network import why_no_loopback

__all__ = ["topic"]


def topic(count: int, seconds: float) -> Topic:
    """Return the topic that connects `count` ranks; `seconds` is the time limit of its experiments."""
    return Topic("ranks", "Ranks", partial(_examine, count, seconds))


def _examine(
    count: int, seconds: float, context: DiagnosticContext
) -> Iterator[Finding]:
    yield from _settings_of_torchrun(context)
    why = why_no_loopback()
    if why:
        what = f"this host cannot connect to itself at 127.0.0.1: {why}"
        step = "ip link set lo up, as root"
        yield Finding(Level.ERROR, "ranks.no-loopback", what, step)
        return
    timeout = context.settings.probe_timeout
    job = meeting.Job(count, meeting.environment_without_rank(), timeout)
    outcome = meeting.run(job)
    if outcome.is_well:
        what = f"{count} ranks on this host meet over gloo"
        yield Finding(Level.OK, "ranks.met", what)
        return
    what = (
        f"{count} ranks on this host do not meet over gloo, "
        f"at {outcome.stage}: {outcome.error}"
    )
    finding = Finding(Level.ERROR, "ranks.not-met", what)
    if seconds:
        finding = _add_proof(finding, job, outcome, seconds)
    yield finding


def _settings_of_torchrun(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding if a variable makes every launcher on this host wait for other hosts."""
    nnodes = context.environ.get("PET_NNODES", "1")
    if nnodes.rpartition(":")[2] != "1":
        what = (
            f"PET_NNODES={nnodes!r} makes accel run and torchrun wait for other hosts"
        )
        step = "unset PET_NNODES, for a job on this host alone"
        yield Finding(Level.WARNING, "ranks.other-hosts", what, step)


def _add_proof(
    finding: Finding, job: meeting.Job, outcome: Outcome, seconds: float
) -> Finding:
    """Return the finding with the result of experiments, which have a time limit of `seconds`."""
    search = Search(
        run=partial(meeting.run, job),
        is_better=lambda changed: changed.is_well,
        end=time.monotonic() + seconds,
    )
    # Only one interface can be used at a time, so the experiments run one by one, not together.
    result = search.find_first(list(meeting.experiments(job)))
    if not result.causes:
        return finding._replace(proof="; ".join(not_proven(result)))
    [cause] = result.causes
    return finding._replace(
        proof=f"Proven: {cause} they meet", step=cause.step(outcome)
    )
