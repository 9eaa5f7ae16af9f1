"""The matters that a doctor looks into, a module each, in the order of the report."""

from __future__ import annotations

from accel_core.doctor import checks
from accel_core.doctor.records import Topic
from accel_core.doctor.topics import candidates

__all__ = ["TOPICS"]

TOPICS: tuple[Topic, ...] = (candidates.TOPIC, checks.TOPIC)
