"""What runs inside a process that has a simulated device. No pytest here, and one name for each check."""

import traceback
from collections.abc import Callable
from typing import Any


class Checks(dict[str, Callable[[Any], Any]]):
    """Functions by name. A check that returns nothing or True has passed."""

    def add(self, function):
        """Register `function` under its name; a decorator."""
        self[function.__name__] = function
        return function

    def run(self, subject):
        """The problem of each check, by name: an empty string where there is none."""
        return {name: _problem(check, subject) for name, check in self.items()}


def _problem(check, subject):
    try:
        answer = check(subject)
    except Exception:
        return traceback.format_exc()
    return "" if answer is None or answer is True else f"gave {answer!r}"
