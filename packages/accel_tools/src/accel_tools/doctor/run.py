"""Examine the topics in parallel within a time limit, and build the report."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from accel_core import hardware
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_tools.doctor.causes import merge_by_cause
from accel_tools.doctor.damage import explain_noexec_mounts
from accel_tools.doctor.proofs import add_proofs
from accel_tools.doctor.records import (
    DiagnosticContext,
    Finding,
    Level,
    Report,
    Topic,
    TopicResult,
)
from accel_tools.doctor.refuted import (
    downgrade_checks_of_proven_backends,
    downgrade_refuted_findings,
)
from accel_tools.doctor.summary import summarize

__all__ = ["end_abandoned_topics", "run_diagnostics", "run_topics"]

#: The time limit of the topics in seconds, in addition to the time for their probes.
_TOPIC_SECONDS = 10.0
#: The number of consecutive probes for which a topic may wait.
_MAX_PROBES = 12
#: The maximum number of ranks that `--ranks` starts.
_MAX_RANKS = 64


def _show_nothing(_title: str) -> None:
    """Show no progress."""


def run_diagnostics(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    on_wait: Callable[[str], None] = _show_nothing,
    on_experiment: Callable[[str], None] = _show_nothing,
    experiment_seconds: float = 0,
    ranks_topic: Topic | None = None,
) -> Report:
    """Examine the topics, find the causes of failures with experiments, and return the report.

    Args:
        context: The input of the topics.
        topics: The topics to examine in parallel.
        on_wait: A function called with a topic's title before `run_diagnostics` waits for the topic's
            result.
        on_experiment: A function called with the description of each experiment.
        experiment_seconds: The time limit for all experiments, or 0 for no experiments.
        ranks_topic: A topic that is examined last and alone, because its child processes wait for each
            other.
    """
    start = time.perf_counter()
    results = run_topics(context, topics, on_wait=on_wait)
    chosen_backend = _chosen_backend_name(context)
    results = merge_by_cause(downgrade_refuted_findings(results, chosen_backend))
    if experiment_seconds:
        programs = context.failed_programs
        try:
            results = add_proofs(programs, results, experiment_seconds, on_experiment)
        except PLUGIN_ERRORS as error:
            # The findings of the topics are reported even if an experiment fails in an unforeseen way.
            results = _add_failure_of_experiments(results, root_cause(error))
        results = merge_by_cause(downgrade_checks_of_proven_backends(results))
    results = explain_noexec_mounts(results)
    if ranks_topic is not None:
        results += run_topics(
            context, [ranks_topic], on_wait=on_wait, max_children=_MAX_RANKS
        )
    ms = (time.perf_counter() - start) * 1e3
    return Report(summarize(context, results), results, ms, chosen_backend)


def _add_failure_of_experiments(
    results: tuple[TopicResult, ...], error: str
) -> tuple[TopicResult, ...]:
    """Return the results with a finding that the experiments ended with an error."""
    what = f"the experiments ended with an error: {error}"
    finding = Finding(Level.WARNING, "experiments.failed", what)
    topic = TopicResult("experiments", "Experiments", (finding,), 0.0)
    return (*results, topic)


def _chosen_backend_name(context: DiagnosticContext) -> str | None:
    """Return the name of the chosen backend, or `None` if no backend was chosen."""
    survey = context.finished_survey
    if survey is None or survey.selection is None:
        return None
    return survey.selection.name


def run_topics(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    limit: float | None = None,
    on_wait: Callable[[str], None] = _show_nothing,
    max_children: int | None = None,
) -> tuple[TopicResult, ...]:
    """Examine the topics in parallel, and return their results in the same order.

    A topic that raises an error or hangs is reported as failed, with the findings that it yielded before.

    Args:
        context: The input of the topics.
        topics: The topics to examine.
        limit: The time limit for all topics in seconds. Topics that have not finished by then are
            abandoned.
        on_wait: A function called with a topic's title before `run_topics` waits for the topic's result.
        max_children: The maximum number of child processes that run in parallel, by default the number of
            usable cores.
    """
    if limit is None:
        limit = _TOPIC_SECONDS + _MAX_PROBES * context.settings.probe_timeout
    if max_children is None:
        # Child processes that import torch delay each other if there are more of them than cores.
        max_children = hardware.usable_cores()
    threads = [_TopicThread(context, topic) for topic in topics]
    deadline = time.monotonic() + limit
    try:
        with _limited_child_processes(max_children):
            for thread in threads:
                _start_or_run(thread)
            for thread in threads:
                on_wait(thread.title)
                if thread.is_alive():
                    seconds_left = deadline - time.monotonic()
                    thread.join(max(0.0, seconds_left))
    except BaseException:
        # Ctrl-C does not reach the child processes, because each child has a session of its own.
        child.end_all(for_good=True)
        raise
    return tuple(thread.result(limit) for thread in threads)


def _start_or_run(thread: _TopicThread) -> None:
    """Start the thread, or run its function in this thread if no thread can be started."""
    try:
        thread.start()
    except RuntimeError:  # No thread can be started.
        thread.run()


@contextlib.contextmanager
def _limited_child_processes(count: int) -> Iterator[None]:
    """Limit the number of child processes that all threads together run at the same time."""
    previous_limit = child.supervision.concurrency_limit
    child.supervision.concurrency_limit = threading.BoundedSemaphore(count)
    try:
        yield
    finally:
        child.supervision.concurrency_limit = previous_limit


def end_abandoned_topics() -> None:
    """Terminate the child processes of abandoned topics, so that this process can exit."""
    if any(isinstance(thread, _TopicThread) for thread in threading.enumerate()):
        child.end_all(for_good=True)


class _TopicThread(threading.Thread):
    """A thread that examines one topic, and collects the topic's findings.

    Each such thread is a daemon, so that a topic that hangs does not keep this process alive.
    """

    def __init__(self, context: DiagnosticContext, topic: Topic) -> None:
        super().__init__(name=f"accel doctor: {topic.name}", daemon=True)
        self._context = context
        self._topic = topic
        self._findings: list[Finding] = []
        self._error = ""
        self._start_seconds = time.perf_counter()
        self._ms: float | None = None

    @property
    def title(self) -> str:
        """Return the title of the topic that this thread examines."""
        return self._topic.title

    def run(self) -> None:
        try:
            # The findings are appended one by one, so that the findings before an error are kept.
            for finding in self._topic.examine(self._context):
                self._findings.append(finding)
        except PLUGIN_ERRORS as error:
            self._error = root_cause(error)
        finally:
            self._ms = self._elapsed_ms()

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start_seconds) * 1e3

    def result(self, limit: float) -> TopicResult:
        """Return the result of the topic, with the findings so far.

        A topic that has not finished counts as failed. `limit` is the time limit in seconds. It is part of
        the reason for this failure.
        """
        ms, failure = self._ms, self._error
        if ms is None:  # The topic is still running.
            ms = self._elapsed_ms()
            failure = f"it did not finish within {limit:g} s and was abandoned"
        return TopicResult(
            self._topic.name, self._topic.title, tuple(self._findings), ms, failure
        )
