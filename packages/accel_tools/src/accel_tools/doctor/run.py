"""Run the topics in parallel, each within its time limit, and build the report."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from accel_core import hardware
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_tools.doctor.causes import merge_by_cause
from accel_tools.doctor.proofs import add_proofs
from accel_tools.doctor.records import (
    DiagnosticContext,
    Finding,
    Report,
    Topic,
    TopicResult,
)
from accel_tools.doctor.refuted import drop_refuted
from accel_tools.doctor.summary import summarize

__all__ = ["end_abandoned_topics", "run_diagnostics", "run_topics"]

#: The time limit of a topic in seconds, in addition to the time of its probes.
_TOPIC_SECONDS = 10.0
#: The number of consecutive probes for which a topic may wait.
_MAX_PROBES = 12
#: The maximum number of ranks that `--ranks` starts.
_MAX_RANKS = 64


def _ignore(_title: str) -> None:
    """Show no progress."""


def run_diagnostics(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    on_wait: Callable[[str], None] = _ignore,
    on_experiment: Callable[[str], None] = _ignore,
    experiment_seconds: float = 0,
    ranks: Topic | None = None,
) -> Report:
    """Examine the topics, find causes with experiments, and return the report.

    Args:
        context: The input of the topics.
        topics: The topics to examine in parallel.
        on_wait: A function that is called with the title of each topic before waiting for its
            result.
        on_experiment: A function that is called with the description of each experiment.
        experiment_seconds: The time limit for all experiments; 0 for no experiments.
        ranks: A topic that is examined last and alone, because its child processes wait for
            each other.
    """
    start = time.perf_counter()
    results = run_topics(context, topics, on_wait=on_wait)
    chosen = _chosen_backend(context)
    results = merge_by_cause(drop_refuted(results, chosen))
    if experiment_seconds:
        results = merge_by_cause(
            add_proofs(context.cases, results, experiment_seconds, on_experiment)
        )
    if ranks is not None:
        results += run_topics(
            context, [ranks], on_wait=on_wait, max_children=_MAX_RANKS
        )
    ms = (time.perf_counter() - start) * 1e3
    return Report(summarize(context, results), results, ms, chosen)


def _chosen_backend(context: DiagnosticContext) -> str | None:
    """Return the name of the chosen backend; `None` if it is unknown."""
    survey = context.finished_survey
    if survey is None or survey.selection is None:
        return None
    return survey.selection.name


def run_topics(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    limit: float | None = None,
    on_wait: Callable[[str], None] = _ignore,
    max_children: int | None = None,
) -> tuple[TopicResult, ...]:
    """Examine the topics in parallel, and return the result of each topic in order.

    A topic that raises an error or hangs is reported as failed, with the findings that it
    yielded before.

    Args:
        context: The input of the topics.
        topics: The topics to examine.
        limit: The time limit in seconds, after which unfinished topics are abandoned.
        on_wait: A function that is called with the title of each topic before waiting for its
            result.
        max_children: The maximum number of child processes that run in parallel, by default
            the number of usable cores.
    """
    if limit is None:
        limit = _TOPIC_SECONDS + _MAX_PROBES * context.settings.probe_timeout
    deadline = time.monotonic() + limit
    threads = [_TopicThread(context, topic) for topic in topics]
    try:
        # All topics share one limit, because more imports of torch than cores delay each other.
        with _limited_children(max_children or hardware.usable_cores()):
            for thread in threads:
                _start(thread)
            for thread in threads:
                on_wait(thread.title)
                if thread.is_alive():
                    thread.join(max(0.0, deadline - time.monotonic()))
    except BaseException:
        # Ctrl-C does not reach the child processes, because each has a separate session.
        child.end_all(for_good=True)
        raise
    return tuple(thread.result(limit) for thread in threads)


def _start(thread: _TopicThread) -> None:
    """Examine the topic in its thread, or in this thread if no thread can be started."""
    try:
        thread.start()
    except RuntimeError:
        thread.run()


@contextlib.contextmanager
def _limited_children(count: int) -> Iterator[None]:
    """Limit the number of child processes that run at the same time, over all threads."""
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
    """A thread that examines one topic.

    It is a daemon thread, so that a thread that hangs does not keep the process alive.
    """

    def __init__(self, context: DiagnosticContext, topic: Topic) -> None:
        super().__init__(name=f"accel doctor: {topic.name}", daemon=True)
        self._context = context
        self._topic = topic
        self._findings: list[Finding] = []
        self._failed = ""
        self._start_time = time.perf_counter()
        self._ms: float | None = None

    @property
    def title(self) -> str:
        """Return the topic's title."""
        return self._topic.title

    def run(self) -> None:
        try:
            # The findings are stored one by one, so that those before a failure are kept.
            for finding in self._topic.examine(self._context):
                self._findings.append(finding)
        except PLUGIN_ERRORS as error:
            self._failed = root_cause(error)
        finally:
            self._ms = self._elapsed_ms()

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start_time) * 1e3

    def result(self, limit: float) -> TopicResult:
        """Return the result of the topic, with the findings so far.

        `limit` is the time limit in seconds, for the message that the topic did not finish.
        """
        ms, failed = self._ms, self._failed
        if ms is None:
            ms = self._elapsed_ms()
            failed = f"it did not finish within {limit:g} s and was abandoned"
        return TopicResult(
            self._topic.name, self._topic.title, tuple(self._findings), ms, failed
        )
