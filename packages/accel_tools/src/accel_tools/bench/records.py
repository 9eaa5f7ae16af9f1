"""Records of measurements, limits of their effort, and the error if no measurement is possible."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["FULL", "QUICK", "Effort", "Measurement", "Outcome", "Step"]


class Outcome(str, enum.Enum):
    """Outcome of a measurement."""

    MEASURED = "measured"
    #: The device has no such thing; `reason` says what.
    NOT_MEASURED = "not measured"
    #: The device, or its vendor's code, failed.
    FAILED = "failed"
    #: The work was timed, and its result was not what it has to be: no value is given.
    WRONG = "wrong"


class Measurement(NamedTuple):
    """One figure, or the reason why it is missing."""

    #: Stays the same from release to release: `"copy.to_device.pinned"`.
    name: str
    #: For people, at most 20 characters: `"to device, pinned"`.
    title: str
    #: `"B/s"`, `"FLOP/s"`, or `"s"` for a call.
    unit: str
    outcome: Outcome
    #: In `unit`, from the median; `None` where nothing was measured.
    value: float | None = None
    #: What the fastest repeat gave, in `unit`.
    best: float | None = None
    #: The interquartile range of the repeats, as a share of the median: 0.03.
    spread: float | None = None
    #: How often it was timed, and how many calls each time.
    repeats: int = 0
    calls: int = 0
    #: Seconds a call, the median of the repeats.
    seconds: float | None = None
    #: Bytes or floating point operations that count for one call; 1 where the value is a time.
    work: float = 1.0
    #: What was worked on: `"128 MiB"`, `"2048 x 2048"`.
    size: str = ""
    #: What else to know of the figure.
    note: str = ""
    #: Why there is no value.
    reason: str = ""

    @property
    def more_is_better(self) -> bool:
        """Return whether a larger value is better: it is a rate, not a time."""
        return self.unit != "s"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return {**self._asdict(), "outcome": self.outcome.value}


class Step(NamedTuple):
    """Measurements that are made together."""

    #: What is being measured, for people who wait: `"matrix float32"`.
    title: str
    run: Callable[[], list[Measurement]]


class Effort(NamedTuple):
    """Limits on time and sizes of a run; within them, sizes depend on the device."""

    #: Seconds that the repeats of one measurement may take together.
    seconds: float = 0.8
    #: Seconds of one repeat, which is as many calls as that takes.
    span: float = 0.02
    #: Fewest and most repeats.
    least: int = 5
    most: int = 50
    #: On the host: the buffers are so many times the last-level caches, and within these bytes. STREAM asks
    #: for four times (https://www.cs.virginia.edu/stream/ref.html).
    caches: int = 4
    least_bytes: int = 64 * 2**20
    most_bytes: int = 2 * 2**30
    #: Bytes copied between host and device, and on the device.
    copy_bytes: int = 256 * 2**20
    device_bytes: int = 512 * 2**20
    #: Matrices grow until a product takes so many seconds, or to so many rows.
    matrix_seconds: float = 0.02
    matrix_most: int = 16384
    #: Bytes of the tensor in a collective: on the host, on a device.
    message_host: int = 16 * 2**20
    message_device: int = 128 * 2**20
    #: Seconds that the ranks of the collectives may take together, with the import of torch in each.
    patience: float = 300.0


FULL = Effort()
QUICK = Effort(
    seconds=0.15, span=0.005, least=3, most=20,
    caches=2, least_bytes=32 * 2**20, most_bytes=512 * 2**20, copy_bytes=64 * 2**20, device_bytes=256 * 2**20,
    matrix_seconds=0.005, matrix_most=8192, message_host=4 * 2**20, message_device=64 * 2**20,
)  # fmt: skip
