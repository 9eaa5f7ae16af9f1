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

__all__ = [
    "Samples",
    "Trial",
    "fastest_trial",
    "make_measurement",
    "mark_wrong",
    "run_measurement",
    "take_samples",
]

#: Calls of one repeat; vendors' queues hold about a thousand launches before a launch waits.
_MAX_CALLS = 500
#: Timed calls that determine how many calls make a repeat.
_TRIALS = 5


class Samples(NamedTuple):
    """Timings of repeated calls."""

    #: Seconds for one call, one number for each repeat.
    seconds: tuple[float, ...]
    #: Calls in each repeat.
    calls: int
    #: All calls, including those to warm up.
    total: int

    @property
    def median(self) -> float:
        """Return the median time of one call, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the interquartile range as a fraction of the median; 0 for a single repeat."""
        if len(self.seconds) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (upper - lower) / self.median


def take_samples(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Samples:
    """Time `call` as often as `effort` allows; `wait` waits for the work that it queues.

    It uses the host's clock around `synchronize()`, which works on every device. A repeat
    is long enough for the time of the waiting itself to be negligible.
    """
    trial = fastest_trial(call, wait, effort)
    calls = round(effort.repeat_seconds / trial.seconds)
    calls = min(_MAX_CALLS, max(1, calls))
    seconds: list[float] = []
    start = time.perf_counter()
    while _needs_more(len(seconds), time.perf_counter() - start, effort):
        seconds.append(_time(call, wait, calls) / calls)
    return Samples(tuple(seconds), calls, trial.calls + calls * len(seconds))


def _needs_more(repeats: int, elapsed: float, effort: Effort) -> bool:
    """Return whether to repeat again after `elapsed` seconds; a very slow device has few repeats."""
    if repeats == 0:
        return True
    if repeats >= effort.max_repeats or elapsed > 4 * effort.seconds:
        return False
    return repeats < effort.min_repeats or elapsed <= effort.seconds


class Trial(NamedTuple):
    """Result of a few calls before the measurement."""

    #: Seconds of the fastest call.
    seconds: float
    #: Number of calls.
    calls: int


def fastest_trial(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Trial:
    """Call once to warm up, then time a few calls, and return the fastest.

    If other processes use the cores, a single call may take a hundred times as long as its work.
    """
    # Warm up: memory is allocated, kernels are compiled or looked up.
    _time(call, wait, 1)
    seconds = [_time(call, wait, 1)]
    while len(seconds) < _TRIALS and sum(seconds) < effort.seconds / 4:
        seconds.append(_time(call, wait, 1))
    return Trial(min(seconds), 1 + len(seconds))


def _time(call: Callable[[], object], wait: Callable[[], object], calls: int) -> float:
    """Return the seconds of that many calls; always above 0."""
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return max(time.perf_counter() - start, 1e-9)


def make_measurement(
    name: str,
    title: str,
    unit: str,
    samples: Samples,
    work: float,
    size: str,
    note: str = "",
) -> Measurement:
    """Return the record of timed calls; each did `work` bytes or operations (1 for a time)."""

    def value(seconds: float) -> float:
        return seconds if unit == "s" else work / seconds

    return Measurement(
        name=name,
        title=title,
        unit=unit,
        outcome=Outcome.MEASURED,
        value=value(samples.median),
        best=value(min(samples.seconds)),
        spread=samples.spread,
        repeats=len(samples.seconds),
        calls=samples.calls,
        seconds=samples.median,
        work=work,
        size=size,
        note=note,
    )


def mark_wrong(measurement: Measurement, reason: str) -> Measurement:
    """Return the record without its value: the speed of a wrong result is meaningless."""
    return measurement._replace(
        outcome=Outcome.WRONG, value=None, best=None, reason=reason
    )


def run_measurement(
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
        reason = root_cause(error).partition("\n")[0]
        return Measurement(name, title, unit, Outcome.FAILED, reason=reason)
