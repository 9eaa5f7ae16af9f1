"""Records of measurements, and limits on the effort of a run."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["FULL", "QUICK", "Effort", "Measurement", "Outcome", "Step"]


class Outcome(str, enum.Enum):
    """The outcome of a measurement, such as `"measured"` or `"failed"`."""

    MEASURED = "measured"
    #: The device does not support the operation; `reason` gives the details.
    NOT_MEASURED = "not measured"
    #: The device, or its vendor's code, failed.
    FAILED = "failed"
    #: The result of the timed work was wrong, so there is no value.
    WRONG = "wrong"


class Measurement(NamedTuple):
    """One measured value, or the reason why the value is missing."""

    #: A name that is stable across releases, such as `"copy.to_device.pinned"`.
    name: str
    #: A human-readable title of at most 20 characters, such as `"to device, pinned"`.
    title: str
    #: The unit of `value`: `"B/s"`, `"FLOP/s"`, or `"s"` for the time of a call.
    unit: str
    outcome: Outcome
    #: The value of the median repeat, in `unit`, or `None` if it is missing.
    value: float | None = None
    #: The value of the fastest repeat, in `unit`, or `None` if it is missing.
    best: float | None = None
    #: The interquartile range of the repeats' times as a fraction of their median, such as 0.03.
    spread: float | None = None
    #: The number of timed repeats.
    repeats: int = 0
    #: The number of calls in each repeat.
    calls: int = 0
    #: The seconds per call of the median repeat.
    seconds: float | None = None
    #: The bytes or floating-point operations of one call, or 1 if the value is a time.
    work: float = 1.0
    #: The size of the data as text, such as `"128 MiB"` or `"2048 x 2048"`.
    size: str = ""
    #: A remark on the value.
    note: str = ""
    #: The reason why the value is missing.
    reason: str = ""

    @property
    def more_is_better(self) -> bool:
        """Return whether a larger value is better. This is true for rates, but not for times."""
        return self.unit != "s"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-serializable values."""
        return {**self._asdict(), "outcome": self.outcome.value}


class Step(NamedTuple):
    """A benchmark step, which makes one or more measurements when it runs."""

    #: The title for the progress line, such as `"matrix float32"`.
    title: str
    run: Callable[[], list[Measurement]]


class Effort(NamedTuple):
    """Limits on the duration and the data sizes of a benchmark run.

    Within these limits, the data sizes depend on the device.
    """

    #: Seconds for all repeats of one measurement.
    seconds: float = 0.8
    #: Seconds of one repeat, which makes as many calls as fit into this time.
    repeat_seconds: float = 0.02
    min_repeats: int = 5
    max_repeats: int = 50
    #: The size of a buffer in host memory as a multiple of the size of the last-level caches.
    #: STREAM requires at least 4: https://www.cs.virginia.edu/stream/ref.html
    cache_multiple: int = 4
    #: The minimum and maximum size of a buffer in host memory, in bytes.
    min_bytes: int = 64 * 2**20
    max_bytes: int = 2 * 2**30
    #: The number of bytes that are copied between host and device.
    copy_bytes: int = 256 * 2**20
    #: The number of bytes that are copied on a device or between devices.
    device_bytes: int = 512 * 2**20
    #: Matrices grow until a product takes `matrix_seconds`, or until they have
    #: `matrix_max_rows` rows.
    matrix_seconds: float = 0.02
    matrix_max_rows: int = 16384
    #: The size in bytes of the tensor in a collective, on the CPU and on other devices.
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
