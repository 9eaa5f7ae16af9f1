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
from accel_tools.doctor.damage import with_mounts
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

#: Seconds that a topic may take in addition to its probes.
_TOPIC_SECONDS = 10.0
#: Consecutive probes that a topic may wait for.
_MAX_PROBES = 12
#: Ranks that may meet on this host.
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
    """Examine the topics, find causes by experiment, and return the report.

    `on_wait` gets the title of each topic before the wait for its result,
    `on_experiment` the description of each experiment. No experiment runs if
    `experiment_seconds` is 0. `ranks` is examined last and alone, because its child
    processes wait for each other.
    """
    start = time.perf_counter()
    results = run_topics(context, topics, on_wait=on_wait)
    chosen = _chosen_backend(context)
    results = merge_by_cause(drop_refuted(results, chosen))
    if experiment_seconds:
        results = merge_by_cause(
            add_proofs(context.cases, results, experiment_seconds, on_experiment)
        )
    results = with_mounts(results)
    if ranks is not None:
        results += run_topics(
            context, [ranks], on_wait=on_wait, max_children=_MAX_RANKS
        )
    ms = (time.perf_counter() - start) * 1e3
    return Report(summarize(context, results), results, ms, chosen)


def _chosen_backend(context: DiagnosticContext) -> str | None:
    """Return the name of the chosen backend; `None` if no topic made the survey."""
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
    """Return the findings of each topic, in order.

    A topic that raises or hangs is reported as failed, with the findings that it had
    yielded before. Unfinished topics are abandoned after `limit` seconds. `on_wait` gets
    the title of each topic before the wait for its result. At most `max_children` child
    processes run in parallel, by default as many as there are cores.
    """
    if limit is None:
        limit = _TOPIC_SECONDS + _MAX_PROBES * context.settings.probe_timeout
    deadline = time.monotonic() + limit
    threads = [_TopicThread(context, topic) for topic in topics]
    try:
        # One limit for all topics: more imports of torch than cores delay each other.
        with _limited_children(max_children or hardware.usable_cores()):
            for thread in threads:
                _start(thread)
            for thread in threads:
                on_wait(thread.title)
                if thread.is_alive():
                    thread.join(max(0.0, deadline - time.monotonic()))
    except BaseException:
        # Ctrl-C does not reach the children, which are sessions of their own.
        child.end_all(for_good=True)
        raise
    return tuple(thread.result(limit) for thread in threads)


def _start(thread: _TopicThread) -> None:
    """Start the topic in its thread, or run it here if no thread can be started."""
    try:
        thread.start()
    except RuntimeError:
        thread.run()


@contextlib.contextmanager
def _limited_children(count: int) -> Iterator[None]:
    """Let at most `count` child processes run at once, whichever threads start them."""
    before = child.supervision.concurrency_limit
    child.supervision.concurrency_limit = threading.BoundedSemaphore(count)
    try:
        yield
    finally:
        child.supervision.concurrency_limit = before


def end_abandoned_topics() -> None:
    """End the child processes of abandoned topics, so that this process can exit."""
    if any(isinstance(thread, _TopicThread) for thread in threading.enumerate()):
        child.end_all(for_good=True)


class _TopicThread(threading.Thread):
    """Examines one topic; a daemon, because a thread that hangs must not keep the process alive."""

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
            # One by one: the findings before a failure are kept.
            for finding in self._topic.examine(self._context):
                self._findings.append(finding)
        except PLUGIN_ERRORS as error:
            self._failed = root_cause(error)
        finally:
            self._ms = self._elapsed_ms()

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._start_time) * 1e3

    def result(self, limit: float) -> TopicResult:
        """Return the findings so far; `limit` is the time limit in seconds, for the message."""
        ms, failed = self._ms, self._failed
        if ms is None:
            ms = self._elapsed_ms()
            failed = f"it did not finish within {limit:g} s and was abandoned"
        return TopicResult(
            self._topic.name, self._topic.title, tuple(self._findings), ms, failed
        )
