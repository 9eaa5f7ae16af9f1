"""Start a command with other process settings: limits, signals, processors, umask and scheduling.

`trial` passes this source code to `python -I -S -c`, so that the environment variables and start-up files of
the examined program do not affect it. Then the command replaces this process.
"""

import os
import sys

#: True only for mypy, which treats this name as a constant.
MYPY = False
if MYPY:
    from collections.abc import Callable
    from typing import Any

#: The option `SCHED_OTHER` of sched_setscheduler(2) has only the priority 0.
_NORMAL_PRIORITY = 0
#: `PER_LINUX` of personality(2), the personality of a normal process.
_PER_LINUX = 0


def main(settings: "dict[str, object]", command: "list[str]") -> None:
    """Apply the settings to this process, and replace it with the command.

    `settings` contains the fields of `trial.ProcessSettings` that are set, by name.
    """
    for name, value in settings.items():
        _SETTERS[name](value)
    os.execv(command[0], command)


def _set_limits(limits: "list[tuple[str, tuple[int, int]]]") -> None:
    import resource

    for name, pair in limits:
        resource.setrlimit(getattr(resource, name), pair)


def _reset_signals(numbers: "list[int]") -> None:
    """Handle the signals in the default way, and do not block them."""
    import signal

    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _set_scheduling(_normal: bool) -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(_NORMAL_PRIORITY))


def _set_personality(_normal: bool) -> None:
    import ctypes

    ctypes.CDLL(None).personality(_PER_LINUX)


#: Functions that apply a setting, by the name of the setting.
_SETTERS: "dict[str, Callable[[Any], object]]" = {
    "limits": _set_limits,
    "default_signals": _reset_signals,
    "processors": lambda processors: os.sched_setaffinity(0, processors),
    "umask": os.umask,
    "normal_scheduling": _set_scheduling,
    "normal_personality": _set_personality,
}

if __name__ == "__main__":
    main(eval(sys.argv[1]), eval(sys.argv[2]))
