"""This Python, started again: with the options that it was started with, and ending when its parent does.

The parent builds the command and ends the child's group; the child asks for its own end, first thing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a child process needs neither
    import subprocess
    from collections.abc import Callable

__all__ = ["command", "end_after", "end_group", "end_with_parent"]

#: Options by the field of `sys.flags` that tells of them; `-I` implies the last three.
_FLAGS = (
    ("dont_write_bytecode", "-B"),
    ("no_site", "-S"),
    ("optimize", "-O"),
    ("ignore_environment", "-E"),
    ("no_user_site", "-s"),
    ("safe_path", "-P"),
)
_IMPLIED = ("-E", "-s", "-P")
#: `-X` options that only print: a child's output is not the place for that.
_PRINTING = ("importtime", "showrefcount")


def command(program: str, *arguments: str) -> list[str]:
    """The command that runs `program`, Python source, under this Python's own options.

    A user who has started Python with `-I` or `-E` has said which files and variables are to be trusted;
    who has set `-X utf8`, how texts are read. Warnings remain those of the child: with `-W error` one of
    torch's or of a vendor's would be what is wrong with it. Raises `FileNotFoundError` where Python does not
    know where it is.
    """
    if not sys.executable:
        raise FileNotFoundError("sys.executable does not say where Python is")
    return [sys.executable, *_options(), "-c", program, *arguments]


def _options() -> list[str]:
    isolated = bool(sys.flags.isolated)
    options = ["-I"] if isolated else []
    for field, option in _FLAGS:
        times = int(getattr(sys.flags, field, 0))  # safe_path is new in 3.11
        if not (isolated and option in _IMPLIED):
            options += [option] * times
    for name, value in sys._xoptions.items():
        if name not in _PRINTING:
            options += ["-X", name if value is True else f"{name}={value}"]
    return options


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started; the child is a session of its own."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def end_with_parent(parent: int, *, number: int | None = None) -> None:
    """In the child: be sent the signal `number`, by default SIGKILL, when the parent ends.

    Linux tells by itself, even while native code hangs; elsewhere a thread looks, except on Windows, where
    nothing is done. `parent`: the process that started this one.
    """
    if sys.platform == "win32":
        return
    chosen = signal.SIGKILL if number is None else number
    # A script between the two makes this another process, whose end means as much.
    above = os.getppid()
    if not _ask_kernel(chosen):
        _look_out(above, lambda: os.kill(os.getpid(), chosen))
    if os.getppid() != above or (above == 1 and parent != 1):  # it ended before we had asked
        os.kill(os.getpid(), chosen)


def _ask_kernel(number: int) -> bool:
    """Ask Linux for the parent-death signal, prctl(2); whether it promises."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # here, as it takes longer to import than all of this

        return bool(ctypes.CDLL(None).prctl(1, ctypes.c_ulong(number)) == 0)  # 1: PR_SET_PDEATHSIG
    except (ImportError, OSError, AttributeError):
        return False


def _look_out(parent: int, then: Callable[[], None]) -> None:
    import threading
    import time

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        then()

    threading.Thread(target=look, daemon=True).start()


def end_after(seconds: float) -> None:
    """In the child: be ended by the kernel, whatever hangs, should the parent not have done so by then."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds)
