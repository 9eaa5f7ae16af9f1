"""A run as one JSON document: write it, read it back, and compare it with another run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import __version__
from accel_tools.bench.records import Measurement, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "KIND",
    "SCHEMA_VERSION",
    "Change",
    "Run",
    "compare",
    "differences",
    "read",
    "started",
    "to_dict",
]

#: What tells this document from the other commands' documents.
KIND = "accel bench"
#: Higher when a field changes its meaning or goes away; a new field leaves it.
SCHEMA_VERSION = 1
#: What makes two runs' figures incomparable: the part of the document, its field, and the words for it.
_SAME = (
    ("machine", "cpu", "the CPU"),
    ("machine", "cores", "the number of cores"),
    ("machine", "system", "the system"),
    ("machine", "torch", "torch"),
    ("machine", "torch_threads", "the number of torch's threads"),
    ("accelerator", "name", "the backend"),
    ("accelerator", "product", "the device"),
    ("accelerator", "driver", "the driver"),
)
#: Far beyond any rate, time or amount of work.
_MOST = 1e30
#: No document of ours is larger: a device that is given by mistake must not fill the memory.
_MOST_BYTES = 4 * 2**20


class Run(NamedTuple):
    """One run of all measurements."""

    #: When it began, UTC, as ISO 8601 writes it.
    time: str
    #: Seconds that it took.
    seconds: float
    quick: bool
    machine: Mapping[str, Any]
    accelerator: Mapping[str, Any]
    measurements: tuple[Measurement, ...]


class Change(NamedTuple):
    """One measurement in two runs; both runs have a value for it."""

    before: Measurement
    now: Measurement
    #: The value now, divided by the one before.
    ratio: float

    @property
    def verdict(self) -> str:
        """Return `"faster"` or `"slower"`; empty if the difference is within the spreads of both runs."""
        noise = max(self.before.spread or 0.0, self.now.spread or 0.0, 0.02)
        gain = self.ratio if self.now.more_is_better else 1 / self.ratio
        if gain > 1 + noise:
            return "faster"
        return "slower" if 1 / gain > 1 + noise else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        return {
            "name": self.now.name, "unit": self.now.unit, "before": self.before.value, "now": self.now.value,
            "ratio": self.ratio, "verdict": self.verdict or "same",
            "same_size": self.before.size == self.now.size,
        }  # fmt: skip


def started() -> str:
    """Return the current time in the format of `Run`."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def to_dict(run: Run) -> dict[str, Any]:
    """Return the run as a document for JSON."""
    return {
        "document": KIND,
        "schema": SCHEMA_VERSION,
        "accel_core": __version__,
        "time": run.time,
        "seconds": round(run.seconds, 3),
        "quick": run.quick,
        "machine": dict(run.machine),
        "accelerator": dict(run.accelerator),
        "measurements": [measurement.to_dict() for measurement in run.measurements],
    }


# --- reading -------------------------------------------------------------------------------------------


def read(path: Path) -> Run:
    """Return the run in a file.

    Raises `ValueError` with the reason: the file does not exist, is not JSON, is another command's document,
    has a later schema, or is damaged.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES // 2**20} MiB")
        document = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:  # of the encoding and of the JSON too
        raise ValueError(
            f"it is not the output of `accel bench --json`: {error}"
        ) from None
    if not isinstance(document, dict) or document.get("document") != KIND:
        raise ValueError("it is JSON, but not the output of `accel bench --json`")
    version = document.get("schema")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema is {version!r}, but this accel-core reads {SCHEMA_VERSION}"
        )
    try:
        return of_dict(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"it is damaged: {what}") from None


def of_dict(document: dict[str, Any]) -> Run:
    """Return the run that `to_dict` wrote; raises `KeyError`, `TypeError` or `ValueError` otherwise."""
    return Run(
        time=_typed(document["time"], str),
        seconds=_typed(document["seconds"], (int, float)),
        quick=_typed(document["quick"], bool),
        machine=_typed(document["machine"], dict),
        accelerator=_typed(document["accelerator"], dict),
        measurements=tuple(map(_measurement, _typed(document["measurements"], list))),
    )


def _measurement(entry: Any) -> Measurement:
    fields = {name: _typed(entry, dict)[name] for name in Measurement._fields}
    read = Measurement(**{**fields, "outcome": Outcome(fields["outcome"])})
    for text in (read.name, read.title, read.unit, read.size, read.note, read.reason):
        _typed(text, str)
    for number in (read.value, read.best, read.spread, read.seconds, read.work):
        if number is not None and not _can_be(_typed(number, (int, float))):
            raise ValueError(f"{read.name} has an impossible number: {number}")
    if (read.outcome is Outcome.MEASURED) != bool(read.value):
        raise ValueError(
            f"{read.name} is {read.outcome.value}, but its value is {read.value}"
        )
    return read


def _can_be(number: float) -> bool:
    """Whether anybody can have measured it: two such numbers can be divided by each other, too."""
    return math.isfinite(number) and (number == 0 or 1 / _MOST <= number <= _MOST)


def _typed(value: Any, kind: type | tuple[type, ...]) -> Any:
    """`value`; raises `TypeError` where it is of another kind. A truth value is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise TypeError(
            f"{str(value)[:40]!r} where {' or '.join(k.__name__ for k in kinds)} must be"
        )
    return value


# --- comparing -----------------------------------------------------------------------------------------


def compare(before: Sequence[Measurement], now: Sequence[Measurement]) -> list[Change]:
    """Return the measurements for which both runs have a value, in the order of `now`."""
    known = {measurement.name: measurement for measurement in before}
    return [
        Change(old, new, new.value / old.value)
        for new in now
        if (old := known.get(new.name)) is not None
        and old.unit == new.unit and old.value and new.value
    ]  # fmt: skip


def differences(before: Run, now: Run) -> list[str]:
    """Return why the figures of two runs are hard to compare, a sentence each; empty if nothing differs."""
    found = []
    for part, field, words in _SAME:
        old, new = getattr(before, part).get(field), getattr(now, part).get(field)
        if old != new:
            found.append(f"{words} was {_shown(old)} and is {_shown(new)}")
    if before.quick != now.quick:
        quick, full = (
            ("the earlier", "this") if before.quick else ("this", "the earlier")
        )
        found.append(f"{quick} run is a quick one, but {full} is not")
    return found


def _shown(value: object) -> str:
    return "not known" if value in (None, "") else str(value)
