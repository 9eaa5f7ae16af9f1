"""The topics of `accel doctor`, a module each, in the order of the report."""

from __future__ import annotations

from accel_tools.doctor.records import Topic
from accel_tools.doctor.topics import (
    at_import,
    candidates,
    checks,
    compute,
    machine,
    others,
    patched,
    privateuse1,
    visible_devices,
)

__all__ = ["TOPICS"]

TOPICS: tuple[Topic, ...] = (
    candidates.TOPIC,
    compute.TOPIC,
    machine.TOPIC,
    visible_devices.TOPIC,
    at_import.TOPIC,
    patched.TOPIC,
    privateuse1.TOPIC,
    others.TOPIC,
    checks.TOPIC,
)
