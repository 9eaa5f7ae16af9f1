"""Check that ranks on this host can connect over gloo; runs only with `--ranks`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from accel_tools.doctor.experiments import rank_connection
from accel_tools.doctor.experiments.cases import describe_unproven
from accel_tools.doctor.experiments.process_settings import step_for_limit
from accel_tools.doctor.experiments.search import Search
from accel_tools.doctor.experiments.trial import Change, Outcome
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_train.launch.network import (
    LoopbackFailure,
    check_loopback,
    check_own_name,
)

__all__ = ["topic"]


def topic(rank_count: int, experiment_seconds: float) -> Topic:
    """Return the topic that checks whether `rank_count` ranks on this host can connect.

    If the ranks cannot connect, experiments look for the cause, for at most `experiment_seconds` seconds.
    With 0 seconds, no experiments run.
    """
    return Topic(
        "ranks",
        "Ranks",
        partial(_examine_rank_connections, rank_count, experiment_seconds),
    )


def _examine_rank_connections(
    rank_count: int, experiment_seconds: float, context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield the finding whether this host can connect to itself, and its ranks to each other."""
    yield from _torchrun_variable_findings(context)
    loopback_failure = check_loopback()
    if loopback_failure is not None and not _is_library_preloaded(context):
        yield _loopback_finding(loopback_failure)
        return
    job = rank_connection.RankJob(
        rank_count=rank_count,
        environ=rank_connection.environment_without_rank_variables(),
        import_timeout=context.settings.probe_timeout,
    )
    outcome = rank_connection.run_ranks(job)
    if outcome.is_successful:
        what = f"{rank_count} ranks on this host can connect over gloo"
        yield Finding(Level.OK, "ranks.met", what)
        return
    details = f"error: {outcome.error}"
    if outcome.stage:
        details = f"last step: {outcome.stage}; {details}"
    finding = Finding(
        Level.ERROR,
        "ranks.not-met",
        f"{rank_count} ranks on this host cannot connect over gloo",
        step_for_limit(outcome),
        details=details,
    )
    if loopback_failure is not None:
        # The preloaded library may refuse the connection, and not the host.
        result = _add_proof(finding, job, outcome, experiment_seconds)
        if not result.is_proven:
            result = _loopback_finding(loopback_failure)
        yield result
        return
    name_failure = check_own_name()
    if name_failure is not None:
        finding = finding._replace(
            proof=str(name_failure), is_proven=True, step=name_failure.step
        )
    else:
        finding = _add_proof(finding, job, outcome, experiment_seconds)
    yield finding


def _is_library_preloaded(context: DiagnosticContext) -> bool:
    """Return whether a variable adds a library to each process, which may replace `connect()`."""
    return any(context.environ.get(name) for name in ("LD_PRELOAD", "LD_AUDIT"))


def _loopback_finding(failure: LoopbackFailure) -> Finding:
    return Finding(Level.ERROR, "ranks.no-loopback", str(failure), failure.step)


def _torchrun_variable_findings(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding for each variable that makes the launchers on this host depend on other hosts.

    torchrun reads each of its options from a variable, and `accel run` starts torchrun. The ranks of this
    topic are started without torchrun, so they do not show the effect of these variables.
    """
    effects: dict[str, str] = {}
    # The value is such as "2", or "1:4" for a range.
    nnodes = context.environ.get("PET_NNODES") or "1"
    most_hosts = nnodes.rpartition(":")[2]
    if most_hosts != "1":
        effects["PET_NNODES"] = "wait for other hosts"
    if context.environ.get("PET_RDZV_ENDPOINT"):
        effects["PET_RDZV_ENDPOINT"] = "connect to this address before ranks start"
    # torchrun needs a server only for other rendezvous backends, such as etcd.
    backend = context.environ.get("PET_RDZV_BACKEND") or "c10d"
    if backend not in ("c10d", "static"):
        effects["PET_RDZV_BACKEND"] = "contact a server before ranks start"
    for variable, effect in effects.items():
        value = context.environ[variable]
        what = f"{variable}={value!r} makes accel run and torchrun {effect}"
        step = f"for a job on this host alone: unset {variable}"
        yield Finding(Level.WARNING, "ranks.other-hosts", what, step)


def _add_proof(
    finding: Finding,
    job: rank_connection.RankJob,
    outcome: Outcome,
    experiment_seconds: float,
) -> Finding:
    """Run experiments on ranks that cannot connect, and return the finding with their result.

    `outcome` is the outcome of the ranks without a change. With 0 seconds, no experiments run.
    """
    if not experiment_seconds:
        return finding

    def run(change: Change) -> Outcome:
        return rank_connection.run_ranks(job, change)

    deadline = time.monotonic() + experiment_seconds

    def new_search() -> Search:
        return Search(
            run=run,
            is_better=lambda changed_outcome: changed_outcome.is_successful,
            deadline=deadline,
            repeats=1,  # Each run imports torch in all ranks.
        )

    result = new_search().find_causes(rank_connection.experiments(job), outcome)
    if not result.causes and not result.stops_search:
        # gloo uses only one network interface, so these changes exclude each other.
        interfaces = list(rank_connection.interface_experiments())
        by_interface = new_search().find_first_cause(interfaces)
        result = by_interface if by_interface.causes else result + by_interface
    if not result.causes:
        return finding._replace(proof=". ".join(describe_unproven(result)))
    causes = " and ".join(str(cause) for cause in result.causes)
    steps = dict.fromkeys(cause.step(outcome) for cause in result.causes)
    return finding._replace(
        proof=f"{causes}, the ranks connect", is_proven=True, step="; ".join(steps)
    )
