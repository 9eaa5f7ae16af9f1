"""Time repeats of a call by the host's clock; the host waits for the device before and after each repeat."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from accel_core.errors import UnsupportedError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.torch_import import import_torch
from accel_tools.bench.records import Effort, Measurement, Outcome

__all__ = ["Samples", "Tried", "attempted", "measured", "quickest", "sampled", "wrong"]

#: Calls of one repeat at most: vendors' queues take about a thousand launches before a launch has to wait.
_MOST_CALLS = 500
#: Calls that are tried before it is known how many make a repeat.
_TRIALS = 5


class Samples(NamedTuple):
    """Timings of repeated calls."""

    #: Seconds a call, one number a repeat.
    seconds: tuple[float, ...]
    #: Calls in each repeat.
    calls: int
    #: Calls in all, those to warm up included.
    total: int

    @property
    def median(self) -> float:
        """Return the median time of one call, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the interquartile range as a share of the median; 0 for a single repeat."""
        if len(self.seconds) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (upper - lower) / self.median


def sampled(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Samples:
    """Time `call`, with `wait` for the work that it queues, as often as `effort` allows.

    It uses the host's clock around `synchronize()`, which works on every device. A repeat is so long that the
    waiting itself does not matter.
    """
    tried = quickest(call, wait, effort)
    calls = min(_MOST_CALLS, max(1, round(effort.span / tried.seconds)))
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < effort.most:
        spent = time.perf_counter() - start
        # A device that is slow beyond all bounds gets fewer repeats, but one.
        if seconds and (
            spent > 4 * effort.seconds
            or (spent > effort.seconds and len(seconds) >= effort.least)
        ):
            break
        seconds.append(_timed(call, wait, calls) / calls)
    return Samples(tuple(seconds), calls, tried.calls + calls * len(seconds))


class Tried(NamedTuple):
    """Result of a few trial calls."""

    #: Of the fastest.
    seconds: float
    #: How many there were.
    calls: int


def quickest(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Tried:
    """Call once to warm up, then time a few calls, and return the result of the fastest.

    If other processes use the cores, a single call may take a hundred times as long as its work.
    """
    _timed(
        call, wait, 1
    )  # allocations, first touches, kernels that are compiled or looked up
    seconds = [_timed(call, wait, 1)]
    while len(seconds) < _TRIALS and sum(seconds) < effort.seconds / 4:
        seconds.append(_timed(call, wait, 1))
    return Tried(min(seconds), 1 + len(seconds))


def _timed(call: Callable[[], object], wait: Callable[[], object], calls: int) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return max(time.perf_counter() - start, 1e-9)


def measured(
    name: str,
    title: str,
    unit: str,
    samples: Samples,
    work: float,
    size: str,
    note: str = "",
) -> Measurement:
    """Return the record of timed calls; each did `work` bytes or operations (1 for a time)."""
    values = [
        work / s if unit != "s" else s for s in (samples.median, min(samples.seconds))
    ]
    return Measurement(
        name=name, title=title, unit=unit, outcome=Outcome.MEASURED, value=values[0], best=values[1],
        spread=samples.spread, repeats=len(samples.seconds), calls=samples.calls, seconds=samples.median,
        work=work, size=size, note=note,
    )  # fmt: skip


def wrong(measurement: Measurement, reason: str) -> Measurement:
    """Return the record without its value: the speed of a wrong result is meaningless."""
    return measurement._replace(
        outcome=Outcome.WRONG, value=None, best=None, reason=reason
    )


def attempted(
    name: str, title: str, unit: str, measure: Callable[[], Measurement]
) -> Measurement:
    """Return the result of `measure`; if it raises, return a record with the reason.

    `UnsupportedError` means that the device lacks the feature; any other error is a failure.
    """
    try:
        with import_torch().no_grad():
            return measure()
    except UnsupportedError as error:
        return Measurement(name, title, unit, Outcome.NOT_MEASURED, reason=str(error))
    except PLUGIN_ERRORS as error:
        return Measurement(
            name,
            title,
            unit,
            Outcome.FAILED,
            reason=root_cause(error).partition("\n")[0],
        )
