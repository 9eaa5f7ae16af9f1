"""Run the topics in parallel, time each, limit its time, and make a report of the results."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from accel_core import hardware
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_tools.doctor.causes import by_cause
from accel_tools.doctor.proofs import with_proofs
from accel_tools.doctor.records import Examined, Finding, Report, Topic, Visit
from accel_tools.doctor.refuted import without_refuted
from accel_tools.doctor.verdict import verdict

__all__ = ["end_given_up", "examine", "visited"]

#: Seconds that a topic may take beside its probes, and for how many probes one after the other it may wait.
_ITSELF = 10.0
#: Ranks that may meet on this host.
_MOST_RANKS = 64
_PROBES = 12


def visited(
    visit: Visit,
    topics: Iterable[Topic],
    awaiting: Callable[[str], None] = lambda _: None,
    trying: Callable[[str], None] = lambda _: None,
    seconds: float = 0,
    ranks: Topic | None = None,
) -> Report:
    """Return the report of a visit, whose experiments may take `seconds`.

    `ranks` is examined last, alone: its children wait for each other.

    `awaiting` is called with the title of each topic that is waited for, `trying` with
    the words of each experiment.
    """
    start = time.perf_counter()
    examined = examine(visit, topics, awaiting=awaiting)
    known = visit.surveyed
    chosen = (
        known.selection.name
        if known is not None and known.selection is not None
        else None
    )
    examined = by_cause(without_refuted(examined, chosen))
    if seconds:
        examined = by_cause(with_proofs(visit.cases, examined, seconds, trying))
    if ranks is not None:
        examined += examine(visit, [ranks], awaiting=awaiting, at_once=_MOST_RANKS)
    return Report(
        verdict(visit, examined), examined, (time.perf_counter() - start) * 1e3, chosen
    )


def examine(
    visit: Visit,
    topics: Iterable[Topic],
    limit: float | None = None,
    awaiting: Callable[[str], None] = lambda _: None,
    at_once: int | None = None,
) -> tuple[Examined, ...]:
    """Return the findings of each topic, in order; a topic that raises or hangs is reported as failed.

    `limit`: seconds after which unfinished topics are abandoned; findings they already have are kept.
    `awaiting` is called with the title of each topic that is waited for. `at_once`: children that may run in
    parallel, by default as many as there are cores.
    """
    limit = _ITSELF + _PROBES * visit.settings.probe_timeout if limit is None else limit
    end = time.monotonic() + limit
    examinations = [_Examination(visit, topic) for topic in topics]
    try:
        # All topics together: more imports of torch than cores would only make each other late.
        with _at_most(at_once or hardware.usable_cores()):
            for examination in examinations:
                _start(examination)
            for examination in examinations:
                awaiting(examination.title)
                if examination.is_alive():
                    examination.join(max(0.0, end - time.monotonic()))
    except (
        BaseException
    ):  # above all Ctrl-C, which the children, sessions of their own, do not hear
        child.end_all(for_good=True)
        raise
    return tuple(examination.so_far(limit) for examination in examinations)


def _start(examination: _Examination) -> None:
    """Start the topic in its thread; where no thread can be started, examine it here."""
    try:
        examination.start()
    except RuntimeError:
        examination.run()


@contextlib.contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Let at most `count` children run at once within the block, whichever threads start them."""
    before = child.supervision.concurrency_limit
    child.supervision.concurrency_limit = threading.BoundedSemaphore(count)
    try:
        yield
    finally:
        child.supervision.concurrency_limit = before


def end_given_up() -> None:
    """End the work of abandoned topics when the process exits, which would otherwise wait for it."""
    if any(isinstance(thread, _Examination) for thread in threading.enumerate()):
        child.end_all(for_good=True)


class _Examination(threading.Thread):
    """One topic at work: a daemon, for a thread that hangs cannot be ended, and must not keep the process."""

    def __init__(self, visit: Visit, topic: Topic) -> None:
        super().__init__(name=f"accel doctor: {topic.name}", daemon=True)
        self._visit = visit
        self._topic = topic
        self._findings: list[Finding] = []
        self._failed = ""
        self._began = time.perf_counter()
        self._took: float | None = None

    @property
    def title(self) -> str:
        """The topic's title."""
        return self._topic.title

    def run(self) -> None:
        try:
            for finding in self._topic.examine(self._visit):
                self._findings.append(
                    finding
                )  # one by one: what was found before a failure counts
        except PLUGIN_ERRORS as error:
            self._failed = root_cause(error)
        finally:
            self._took = (time.perf_counter() - self._began) * 1e3

    def so_far(self, limit: float) -> Examined:
        """Return its findings so far; `limit`: the seconds that it was given."""
        ms, failed = self._took, self._failed
        if ms is None:
            ms = (time.perf_counter() - self._began) * 1e3
            failed = f"it did not finish within {limit:g} s and was abandoned"
        return Examined(
            self._topic.name, self._topic.title, tuple(self._findings), ms, failed
        )
