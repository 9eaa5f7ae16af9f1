"""Run a few lines in a forked process."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

__all__ = ["in_fork", "patient"]


def patient(seconds: float) -> float:
    """Return the seconds to wait for what takes `seconds` at most on an idle machine.

    They are more where the last minute had more work than processors: every process is slower then.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return seconds * max(1.0, load / (os.cpu_count() or 1))


def in_fork(work: Callable[[], str], seconds: float) -> tuple[str, int | None]:
    """Return the result or error of `work` in a forked process, and its status; `None` if it hung.

    A process that hangs is ended after `seconds`. An exception is returned as `"RuntimeError: …"`.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            said = work()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException:
            said, code = "", 1
        os.write(writing, said.encode()[:4000])
        os._exit(code)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], seconds)
        said = os.read(reading, 4096).decode("utf-8", "replace") if ready else ""
        return said, _status(pid, seconds if ready else 0.0)
    finally:
        os.close(reading)


def _status(pid: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.01)
