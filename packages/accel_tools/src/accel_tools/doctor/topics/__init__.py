"""The topics of `accel doctor`, one module per topic."""

from __future__ import annotations

from accel_tools.doctor.records import Topic
from accel_tools.doctor.topics import (
    candidates,
    checks,
    compute,
    frameworks,
    import_hooks,
    machine,
    monkeypatches,
    privateuse1,
    visible_devices,
)

__all__ = ["TOPICS"]

#: All topics in the order of the report.
TOPICS: tuple[Topic, ...] = (
    candidates.TOPIC,
    compute.TOPIC,
    machine.TOPIC,
    visible_devices.TOPIC,
    import_hooks.TOPIC,
    monkeypatches.TOPIC,
    privateuse1.TOPIC,
    frameworks.TOPIC,
    checks.TOPIC,
)
