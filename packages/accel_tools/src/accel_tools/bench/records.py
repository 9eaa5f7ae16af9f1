"""Records of measurements, and limits on the effort of a run."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["FULL", "QUICK", "Effort", "Measurement", "Outcome", "Step"]


class Outcome(str, enum.Enum):
    """Outcome of a measurement."""

    MEASURED = "measured"
    #: The device does not support it; `reason` gives the details.
    NOT_MEASURED = "not measured"
    #: The device, or its vendor's code, failed.
    FAILED = "failed"
    #: The result of the timed work was wrong, so there is no value.
    WRONG = "wrong"


class Measurement(NamedTuple):
    """One figure, or the reason why it is missing."""

    #: Stable across releases: `"copy.to_device.pinned"`.
    name: str
    #: For people, at most 20 characters: `"to device, pinned"`.
    title: str
    #: `"B/s"`, `"FLOP/s"`, or `"s"` for the time of a call.
    unit: str
    outcome: Outcome
    #: In `unit`, from the median; `None` if nothing was measured.
    value: float | None = None
    #: In `unit`, from the fastest repeat.
    best: float | None = None
    #: The interquartile range of the repeats, as a fraction of the median: 0.03.
    spread: float | None = None
    #: Number of timed repeats.
    repeats: int = 0
    #: Number of calls in each repeat.
    calls: int = 0
    #: Seconds for one call, the median of the repeats.
    seconds: float | None = None
    #: Bytes or floating-point operations of one call; 1 if the value is a time.
    work: float = 1.0
    #: The size of the data: `"128 MiB"`, `"2048 x 2048"`.
    size: str = ""
    #: A remark on the figure.
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

    #: What is measured, for people who wait: `"matrix float32"`.
    title: str
    run: Callable[[], list[Measurement]]


class Effort(NamedTuple):
    """Limits on time and sizes of a run; within them, sizes depend on the device."""

    #: Seconds for all repeats of one measurement.
    seconds: float = 0.8
    #: Seconds of one repeat, which has as many calls as fit.
    repeat_seconds: float = 0.02
    min_repeats: int = 5
    max_repeats: int = 50
    #: Buffers on the host are this many times the size of the last-level caches. STREAM
    #: requires four times: https://www.cs.virginia.edu/stream/ref.html
    cache_multiple: int = 4
    #: Bounds of buffers on the host, in bytes.
    min_bytes: int = 64 * 2**20
    max_bytes: int = 2 * 2**30
    #: Bytes that are copied between host and device.
    copy_bytes: int = 256 * 2**20
    #: Bytes that are copied on the device.
    device_bytes: int = 512 * 2**20
    #: Matrices grow until a product takes this long, or they have this many rows.
    matrix_seconds: float = 0.02
    matrix_max_rows: int = 16384
    #: Bytes of the tensor in a collective.
    message_host_bytes: int = 16 * 2**20
    message_device_bytes: int = 128 * 2**20
    #: Seconds for all collectives, including the import of torch in each rank.
    collective_seconds: float = 300.0


FULL = Effort()
QUICK = Effort(
    seconds=0.15,
    repeat_seconds=0.005,
    min_repeats=3,
    max_repeats=20,
    cache_multiple=2,
    min_bytes=32 * 2**20,
    max_bytes=512 * 2**20,
    copy_bytes=64 * 2**20,
    device_bytes=256 * 2**20,
    matrix_seconds=0.005,
    matrix_max_rows=8192,
    message_host_bytes=4 * 2**20,
    message_device_bytes=64 * 2**20,
)
