"""Which fault is met in which place by which command: all of them but where a command takes seconds."""

import itertools

from accel_faults.catalogue import FAULTS, Place
from accel_faults.modes import Mode

#: These take seconds: torch's launcher is the real torch's, and a doctor looks at everything.
SLOW = (Mode.DRY_RUN, Mode.DOCTOR)
QUICK = [mode for mode in Mode if mode not in SLOW]
#: Who asks for a plugin's own checks is the doctor alone.
PLACES = [place for place in Place if place is not Place.CHECKS]
#: So the slow ones meet each fault in some places, and each place with a fault of each kind.
_OF_EACH_KIND = ("raises RuntimeError", "os._exit(3)", "hangs")


def _slow(*everywhere):
    both = itertools.product(FAULTS, dict.fromkeys([*PLACES, *everywhere]))
    return [(f, p) for f, p in both if p in everywhere or f.name in _OF_EACH_KIND]


OF_LAUNCHER = _slow(Place.IMPORT, Place.VENDOR)
OF_DOCTOR = _slow(Place.IMPORT, Place.VENDOR, Place.CHECKS)


def _every():
    yield from itertools.product(FAULTS, PLACES, QUICK)
    yield from ((fault, place, Mode.DRY_RUN) for fault, place in OF_LAUNCHER)
    yield from ((fault, place, Mode.DOCTOR) for fault, place in OF_DOCTOR)


EVERY = list(_every())

# As there are fewer modes than places, the pairs differ all the way. The last mode is the first, so that a
# program meets a fault that ends it.
DIAGONAL = list(
    zip(
        FAULTS,
        itertools.cycle(PLACES),
        itertools.cycle([QUICK[-1], *QUICK[:-1]]),
        strict=False,
    )
)
