"""Convert a run to a JSON document, read such a document, and compare two runs."""

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
    "current_time",
    "find_changes",
    "find_differences",
    "read_run",
    "run_from_dict",
    "run_to_dict",
]

#: The value of the document's field `document`. It identifies the command that wrote the document.
KIND = "accel bench"
#: The version of the document's schema. It increases if a field changes its meaning or is
#: removed, but not if a field is added.
SCHEMA_VERSION = 1


class _ComparedFact(NamedTuple):
    """A fact that must be the same in two runs for their results to be comparable."""

    #: The part of the document: `"machine"` or `"accelerator"`.
    part: str
    #: The field in this part.
    field: str
    #: The name of the fact for people.
    title: str


_COMPARED_FACTS = (
    _ComparedFact("machine", "cpu", "the CPU"),
    _ComparedFact("machine", "cores", "the number of cores"),
    _ComparedFact("machine", "system", "the system"),
    _ComparedFact("machine", "torch", "torch"),
    _ComparedFact("machine", "torch_threads", "torch's number of threads"),
    _ComparedFact("accelerator", "name", "the backend"),
    _ComparedFact("accelerator", "product", "the device"),
    _ComparedFact("accelerator", "driver", "the driver"),
)
#: A limit that exceeds any rate, time or amount of work.
_MAX_NUMBER = 1e30
#: The maximum size of a document. Without a limit, a device file such as /dev/zero that is
#: passed by mistake would fill the memory.
_MAX_BYTES = 4 * 2**20


class Run(NamedTuple):
    """The result of one run of `accel bench`: measurements, and facts about the machine and accelerator."""

    #: The time in UTC at which the run started, in ISO 8601 format.
    time: str
    #: Duration in seconds.
    seconds: float
    quick: bool
    machine: Mapping[str, Any]
    accelerator: Mapping[str, Any]
    measurements: tuple[Measurement, ...]


class Change(NamedTuple):
    """The change of a measured value between two runs."""

    before: Measurement
    now: Measurement
    #: The value in the new run, divided by the value in the earlier run.
    ratio: float

    @property
    def verdict(self) -> str:
        """Return `"faster"`, `"slower"`, or an empty string if the change is noise.

        A change is noise if it is at most 2 %, or at most the larger spread of the two measurements.
        """
        noise = max(self.before.spread or 0.0, self.now.spread or 0.0, 0.02)
        speedup = self.ratio if self.now.more_is_better else 1 / self.ratio
        slowdown = 1 / speedup
        if speedup > 1 + noise:
            return "faster"
        if slowdown > 1 + noise:
            return "slower"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON-serializable values."""
        return {
            "name": self.now.name,
            "unit": self.now.unit,
            "before": self.before.value,
            "now": self.now.value,
            "ratio": self.ratio,
            "verdict": self.verdict or "same",
            "same_size": self.before.size == self.now.size,
        }


def current_time() -> str:
    """Return the current UTC time in ISO 8601 format, such as `"2026-11-24T09:30:00+00:00"`."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def run_to_dict(run: Run) -> dict[str, Any]:
    """Return the run as JSON-serializable values."""
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


# --- Reading -------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Read a run from a JSON file that `accel bench --json` wrote.

    Raises `ValueError` if the file cannot be read, is not JSON, was written by a different
    command, has an unsupported schema version, or is damaged. The message gives the reason.
    """
    document = _read_json(path)
    if not isinstance(document, dict) or document.get("document") != KIND:
        raise ValueError(
            "the file contains JSON, but not the output of `accel bench --json`"
        )
    version = document.get("schema")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"the file has schema version {version!r}, but this release of accel-tools reads "
            f"only version {SCHEMA_VERSION}"
        )
    try:
        return run_from_dict(document)
    except KeyError as error:
        raise ValueError(f"the file is damaged: the field {error} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the file is damaged: {error}") from None


def _read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises `ValueError` with the reason if the file cannot be read or is not JSON.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"the file cannot be read: {error.strerror or error}"
        ) from None
    if len(data) > _MAX_BYTES:
        raise ValueError(
            f"the file is larger than {_MAX_BYTES // 2**20} MiB, "
            "so it is not the output of `accel bench --json`"
        )
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("the JSON in the file is nested too deeply") from None
    except ValueError as error:  # The encoding or the JSON is invalid.
        raise ValueError(
            f"the file is not the output of `accel bench --json`: {error}"
        ) from None


def run_from_dict(document: dict[str, Any]) -> Run:
    """Create a `Run` from a document that `run_to_dict` returned.

    Raises `KeyError` if a field is missing, `TypeError` if a field has the wrong type, and `ValueError` if
    a field has an impossible value.
    """
    measurements = _require_type(document["measurements"], list)
    return Run(
        time=_require_type(document["time"], str),
        seconds=_require_type(document["seconds"], int, float),
        quick=_require_type(document["quick"], bool),
        machine=_require_type(document["machine"], dict),
        accelerator=_require_type(document["accelerator"], dict),
        measurements=tuple(_measurement_from_dict(item) for item in measurements),
    )


def _measurement_from_dict(item: Any) -> Measurement:
    """Convert an item of a document's list `measurements` to a `Measurement`.

    Raises the same errors as `run_from_dict`.
    """
    item = _require_type(item, dict)
    fields = {name: item[name] for name in Measurement._fields}
    fields["outcome"] = Outcome(fields["outcome"])
    result = Measurement(**fields)
    texts = (
        result.name,
        result.title,
        result.unit,
        result.size,
        result.note,
        result.reason,
    )
    for text in texts:
        _require_type(text, str)
    numbers = (result.value, result.best, result.spread, result.seconds, result.work)
    for number in numbers:
        if number is None:
            continue
        _require_type(number, int, float)
        if not _is_possible(number):
            raise ValueError(
                f"the measurement {result.name} contains an impossible number: {number}"
            )
    should_have_value = result.outcome is Outcome.MEASURED
    has_value = bool(result.value)
    if has_value != should_have_value:
        raise ValueError(
            f"the measurement {result.name} has the outcome {result.outcome.value!r}, "
            f"but the value {result.value}"
        )
    return result


def _is_possible(number: float) -> bool:
    """Return whether a measurement can have this number: 0, or from 1e-30 to 1e30.

    The limits also ensure that the quotient of two such numbers other than 0 is finite.
    """
    is_in_range = 1 / _MAX_NUMBER <= number <= _MAX_NUMBER
    return math.isfinite(number) and (number == 0 or is_in_range)


def _require_type(value: Any, *expected_types: type) -> Any:
    """Return `value` if it is an instance of one of the types, and otherwise raise `TypeError`.

    A bool does not count as a number.
    """
    # bool is a subclass of int, but a bool is not a number.
    is_unexpected_bool = isinstance(value, bool) and bool not in expected_types
    if is_unexpected_bool or not isinstance(value, expected_types):
        expected = " or ".join(
            expected_type.__name__ for expected_type in expected_types
        )
        value_text = str(value)[:40]
        raise TypeError(f"{value_text!r}, expected {expected}")
    return value


# --- Comparing -----------------------------------------------------------------------


def find_changes(
    before: Sequence[Measurement], now: Sequence[Measurement]
) -> list[Change]:
    """Return a `Change` for each measurement that has a value in both runs.

    The changes are in the order of the measurements in the new run, `now`.
    """
    earlier_by_name = {measurement.name: measurement for measurement in before}
    changes = []
    for measurement in now:
        earlier = earlier_by_name.get(measurement.name)
        if earlier is None or earlier.unit != measurement.unit:
            continue
        if earlier.value and measurement.value:
            ratio = measurement.value / earlier.value
            changes.append(Change(earlier, measurement, ratio))
    return changes


def find_differences(before: Run, now: Run) -> list[str]:
    """Return one sentence for each difference that makes the results of two runs hard to compare.

    The runs may differ in the machine, the version of torch, the device or driver, or the option `--quick`.
    """
    sentences = []
    for fact in _COMPARED_FACTS:
        # A fact is part of `machine` or of `accelerator` of a run.
        value_before = getattr(before, fact.part).get(fact.field)
        value_now = getattr(now, fact.part).get(fact.field)
        if value_before != value_now:
            sentences.append(
                f"{fact.title} was {_value_or_unknown(value_before)} in the earlier run, "
                f"but is {_value_or_unknown(value_now)} in this run"
            )
    if before.quick and not now.quick:
        sentences.append("the earlier run used --quick, but this run did not")
    if now.quick and not before.quick:
        sentences.append("this run used --quick, but the earlier run did not")
    return sentences


def _value_or_unknown(value: object) -> str:
    """Return the value as text, or `"unknown"` for `None` and an empty string."""
    return "unknown" if value in (None, "") else str(value)
