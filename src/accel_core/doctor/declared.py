"""The backends whose devices and packages the topics look at."""

from __future__ import annotations

from accel_core.detection.records import Candidate
from accel_core.doctor.records import Visit

__all__ = ["declared"]


def declared(visit: Visit) -> tuple[Candidate, ...]:
    """The candidates that were asked for, in rank order, and that the policy leaves."""
    return tuple(
        candidate
        for candidate in visit.candidates()
        if isinstance(candidate, Candidate)
        and visit.concerns(candidate.name, candidate.distribution)
        and visit.settings.permits(candidate.name, candidate.distribution)
    )
