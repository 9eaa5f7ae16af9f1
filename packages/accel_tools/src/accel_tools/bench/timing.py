"""Time repeated calls with the host's clock.

The host waits for the device before and after each repeat.
"""

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

#: The maximum number of calls in a repeat. A device's queue holds about a thousand launches;
#: when the queue is full, a launch blocks.
_MAX_CALLS = 500
#: The maximum number of timed calls that determine the number of calls in a repeat.
_TRIALS = 5


class Samples(NamedTuple):
    """The timings of repeated calls to a function."""

    #: The seconds per call, one number for each repeat.
    seconds: tuple[float, ...]
    #: The number of calls in each repeat.
    calls: int
    #: The number of all calls, including the calls before the first repeat.
    total: int

    @property
    def median(self) -> float:
        """Return the median time per call, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the interquartile range of `seconds` as a fraction of the median.

        The spread is 0 if there is only one repeat.
        """
        if len(self.seconds) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (upper - lower) / self.median


def take_samples(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Samples:
    """Time repeated calls to a function.

    Each repeat makes one or more calls to `call` and then calls `wait`. The host's clock is read before and
    after each repeat, which works for every device. A repeat is so long that the duration of `wait` is
    negligible.

    Args:
        call: The function to time. It may queue work on the device.
        wait: A function that waits for the queued work, such as `synchronize()`.
        effort: The limits on the duration and the number of repeats.
    """
    trial = fastest_trial(call, wait, effort)
    calls = round(effort.repeat_seconds / trial.seconds)
    calls = min(_MAX_CALLS, max(1, calls))
    seconds: list[float] = []  # per call, one number for each repeat
    start = time.perf_counter()
    while _needs_more_repeats(len(seconds), time.perf_counter() - start, effort):
        seconds.append(_time_calls(call, wait, calls) / calls)
    total_calls = trial.calls + calls * len(seconds)
    return Samples(tuple(seconds), calls, total_calls)


def _needs_more_repeats(repeats: int, elapsed: float, effort: Effort) -> bool:
    """Return whether another repeat is needed after `repeats` repeats, which took `elapsed` seconds.

    On a very slow device, the number of repeats may be less than `effort.min_repeats`.
    """
    if repeats == 0:
        return True
    # The minimum number of repeats may take at most four times the desired time.
    takes_too_long = elapsed > 4 * effort.seconds
    if repeats >= effort.max_repeats or takes_too_long:
        return False
    return repeats < effort.min_repeats or elapsed <= effort.seconds


class Trial(NamedTuple):
    """The result of a few trial calls to a function, which are made before the function is measured."""

    #: The seconds of the fastest call.
    seconds: float
    #: The number of calls, including the first call, which is not timed.
    calls: int


def fastest_trial(
    call: Callable[[], object], wait: Callable[[], object], effort: Effort
) -> Trial:
    """Time a few calls to `call`, and return the fastest of them.

    An additional first call is not timed. The fastest call counts, because a single call may take a hundred
    times as long if other processes use the cores.
    """
    # The first call allocates memory, and compiles or loads kernels.
    _time_calls(call, wait, 1)
    seconds = [_time_calls(call, wait, 1)]
    # No new trial begins after a quarter of the measurement's time.
    time_limit = effort.seconds / 4
    while len(seconds) < _TRIALS and sum(seconds) < time_limit:
        seconds.append(_time_calls(call, wait, 1))
    return Trial(min(seconds), calls=1 + len(seconds))


def _time_calls(
    call: Callable[[], object], wait: Callable[[], object], calls: int
) -> float:
    """Return how many seconds `calls` calls to `call` and one call to `wait` take.

    The result is always above 0.
    """
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    elapsed = time.perf_counter() - start
    return max(elapsed, 1e-9)  # A coarse clock may not have advanced.


def make_measurement(
    name: str,
    title: str,
    unit: str,
    samples: Samples,
    work: float,
    size: str,
    note: str = "",
) -> Measurement:
    """Create a measurement from the timings of repeated calls.

    `work` is the number of bytes or floating-point operations per call, or 1 if the unit is `"s"`.
    """

    def convert_to_unit(seconds: float) -> float:
        return seconds if unit == "s" else work / seconds

    return Measurement(
        name=name,
        title=title,
        unit=unit,
        outcome=Outcome.MEASURED,
        value=convert_to_unit(samples.median),
        best=convert_to_unit(min(samples.seconds)),
        spread=samples.spread,
        repeats=len(samples.seconds),
        calls=samples.calls,
        seconds=samples.median,
        work=work,
        size=size,
        note=note,
    )


def mark_wrong(measurement: Measurement, reason: str) -> Measurement:
    """Return the measurement with the outcome `WRONG`, the reason, and no value.

    If the timed work computed a wrong result, the speed is meaningless.
    """
    return measurement._replace(
        outcome=Outcome.WRONG, value=None, best=None, reason=reason
    )


def run_measurement(
    name: str, title: str, unit: str, measure: Callable[[], Measurement]
) -> Measurement:
    """Call `measure`, and return the measurement that it makes.

    If `measure` raises an error, the returned measurement has no value, and contains the error as the
    reason. Its outcome is `NOT_MEASURED` for an `UnsupportedError`, and `FAILED` for other errors.
    """
    try:
        with import_torch().no_grad():
            return measure()
    except UnsupportedError as error:
        return Measurement(name, title, unit, Outcome.NOT_MEASURED, reason=str(error))
    except PLUGIN_ERRORS as error:
        reason = root_cause(error).partition("\n")[0]
        return Measurement(name, title, unit, Outcome.FAILED, reason=reason)
