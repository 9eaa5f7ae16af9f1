"""Properties that hold for any input: each example has a deadline and a bound on memory.

Session `all-tests` runs a few examples of each, the same on every run; session `fuzz` sets `FUZZ_EXAMPLES`
and runs many, others each time. Whatever failed once is an `@example` beside the property.
"""

import os
import signal
import threading
import tracemalloc
from contextlib import contextmanager
from functools import wraps

from hypothesis import HealthCheck, Phase, given, settings

#: How many examples of each property; without it a few that are always the same.
_MANY = int(os.environ.get("FUZZ_EXAMPLES", "0"))
_FEW = 15
#: What one example may take: seconds (on a machine with other work), and bytes of Python's at their height.
_SECONDS, _BYTES = 10.0, 64 << 20

_effort = settings(
    max_examples=_MANY or _FEW,
    derandomize=not _MANY,
    database=None,
    deadline=None,  # `bounded` ends what hangs, which this would only tell of
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if _MANY else [])],
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)


def fuzzed(**strategies):
    """Like hypothesis' `given`, with the examples bounded, and as many as the session asks for."""

    def decorate(check):
        @wraps(check)
        def one(*arguments, **named):
            with bounded():
                check(*arguments, **named)

        return _effort(given(**strategies)(one))

    return decorate


@contextmanager
def bounded(seconds=_SECONDS, size=_BYTES):
    """Raise `TimeoutError` for what takes longer, and `AssertionError` for what holds more memory at once."""
    with _deadline(seconds):
        traced = tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start(1)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            yield
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            if not traced:
                tracemalloc.stop()
    assert peak <= size, f"{peak} bytes at once, expected at most {size}"


@contextmanager
def _deadline(seconds):
    # Windows has no such timer; a signal is the main thread's.
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def expired(_number, _frame):
        raise TimeoutError(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
