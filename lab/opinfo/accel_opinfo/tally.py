"""What is counted of one case: calls that pass on the CPU, and those of them that do the same here."""

import math
import time
import warnings
from unittest import mock

import torch

from accel_opinfo.compare import ROUNDED, WRONG, difference

#: Failures of one variant that are told with their reason.
_TOLD = 3


def first_line(error):
    """Give an error in one line that is not too long."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"[:300]


class Tally:
    """Runs calls on both sides and counts, for each variant of one case.

    `about(variant)` is told which is about to run, so that a process above knows where this one died;
    variants in `skip` are those it died in before. A device that is not `exact` may round otherwise than the
    CPU and draw other random numbers. After `seconds` the other calls of a variant are left out.
    """

    def __init__(self, device, skip, about, *, exact=True, seconds=math.inf):
        self.device = device
        self._exact = exact
        self._seconds = seconds
        self._until = math.inf
        self._skip = skip
        self._about = about
        self.variants = {}

    def wants(self, variant):
        """Whether this variant is to run; says that it is about to."""
        if variant in self._skip:
            return False
        self._about(variant)
        self._until = time.monotonic() + self._seconds
        return True

    def run(self, variant, call, what, *, values=True, seed=1):
        """Count `call("cpu")` against `call(device)`, each with the same seed; give what CPU's gave.

        Nothing is counted where the CPU's raises; None is given then.
        """
        if time.monotonic() > self._until:
            return None
        host, refused = _attempt(call, "cpu", seed)
        if refused is not None:
            return None
        device, error = _attempt(call, self.device, seed)
        if error is not None:
            said = first_line(error)
        else:
            said = self._said(host, device, values)
            if (
                said is not None
                and not self._exact
                and self._is_random(call, host, seed)
            ):
                said = self._said(host, device, values=False)
            if (
                said is not None
                and said.startswith(ROUNDED)
                and self._reads_what_was_there(call, seed)
            ):
                said = None
        self.count(variant, what, said)
        return host

    def _said(self, host, device, values):
        try:
            return difference(
                host, device, self.device, values=values, exact=self._exact
            )
        except Exception as broken:
            return f"the result cannot be read: {first_line(broken)}"

    def _is_random(self, call, host, seed):
        """Whether the CPU gives other values with other seeds, those that the database sets included."""
        seeded = torch.manual_seed
        with mock.patch.object(torch, "manual_seed", lambda number: seeded(number + 1)):
            again, error = _attempt(call, "cpu", seed)
        return error is None and difference(host, again, "cpu") is not None

    def _reads_what_was_there(self, call, seed):
        """Whether both round alike once new memory is filled: the kernel read of it what nobody wrote.

        torch gives LAPACK's `gelsy` pivots so, and the CPU does not give the same bits each time either.
        """
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            host, device = (
                _attempt(call, each, seed)[0] for each in ("cpu", self.device)
            )
        finally:
            torch.use_deterministic_algorithms(False)
        return self._said(host, device, values=True) is None

    def raises(self, variant, call, what):
        """Count a call that the CPU refuses: the device must refuse it with the same class of error."""
        if time.monotonic() > self._until:
            return
        _, expected = _attempt(call, "cpu", 1)
        if expected is None:
            return
        _, error = _attempt(call, self.device, 1)
        if error is None:
            self.count(
                variant, what, f"accepted what the CPU refuses: {first_line(expected)}"
            )
        elif type(error) is not type(expected):
            self.count(
                variant,
                what,
                f"{first_line(error)}; on the CPU: {first_line(expected)}",
            )
        else:
            self.count(variant, what, None)

    def count(self, variant, what, said):
        """Count one call; `said` is why it is not as on the CPU, None where it is."""
        seen = self.variants.setdefault(
            variant, {"calls": 0, "same": 0, "wrong": 0, "failures": []}
        )
        seen["calls"] += 1
        if said is None:
            seen["same"] += 1
            return
        seen["wrong"] += said.startswith(WRONG)
        if len(seen["failures"]) < _TOLD or (
            said.startswith(WRONG) and seen["wrong"] == 1
        ):
            seen["failures"].append([str(what), said])


def _attempt(call, device, seed):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(device), None
        except Exception as error:
            return None, error
