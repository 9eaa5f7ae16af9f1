"""The topics to a report: each on its own and timed, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from accel_core.detection.records import CAUGHT, root_cause
from accel_core.doctor.records import Examined, Topic, Visit

__all__ = ["examine"]


def examine(visit: Visit, topics: Iterable[Topic]) -> tuple[Examined, ...]:
    """What each topic finds, in their order; one that raises says so and takes nothing from the others."""
    wanted = tuple(topics)
    if not wanted:
        return ()
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        return tuple(pool.map(lambda topic: _one(topic, visit), wanted))


def _one(topic: Topic, visit: Visit) -> Examined:
    start = time.perf_counter()
    failed = ""
    try:
        findings = tuple(topic.examine(visit))
    except CAUGHT as error:
        findings, failed = (), root_cause(error)
    return Examined(topic.name, topic.title, findings, (time.perf_counter() - start) * 1e3, failed)
