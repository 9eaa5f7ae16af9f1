"""What the topics have in common: the backends that are declared here, and children side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from accel_core.detection.discovery import discover
from accel_core.detection.records import Candidate
from accel_core.doctor.records import Visit
from accel_core.machine import host

__all__ = ["declared", "side_by_side"]

T = TypeVar("T")
R = TypeVar("R")


def declared(visit: Visit) -> tuple[Candidate, ...]:
    """The candidates that were asked for, in rank order, and that the policy leaves."""
    return tuple(
        candidate
        for candidate in discover()
        if isinstance(candidate, Candidate)
        and visit.concerns(candidate.name, candidate.distribution)
        and visit.settings.permits(candidate.name, candidate.distribution)
    )


def side_by_side(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `work` makes of each, in their order; as many at once as there are cores, for each has a child."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(len(todo), host.usable_cores())) as pool:
        return list(pool.map(work, todo))
