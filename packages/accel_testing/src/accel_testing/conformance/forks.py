"""Run functions in forked processes, with time limits that are longer on a busy machine."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

__all__ = ["run_in_fork", "scale_timeout"]


def scale_timeout(seconds: float) -> float:
    """Return a timeout for work that takes at most `seconds` on an idle machine.

    The timeout is longer than `seconds` if last minute's load average exceeds the number of CPU cores.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return seconds * max(1.0, load / (os.cpu_count() or 1))


def run_in_fork(work: Callable[[], str], seconds: float) -> tuple[str, int | None]:
    """Run `work` in a forked process, and return its result and the exit status of the process.

    If `work` raises an exception, the result is its text, such as `"RuntimeError: …"`. The status is `None`
    if the process did not end and was killed after `seconds`.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        exit_status = 0
        try:
            output = work()
        except Exception as error:
            output = f"{type(error).__name__}: {error}"
        except BaseException:
            output, exit_status = "", 1
        os.write(write_end, output.encode()[:4000])
        os._exit(exit_status)
    os.close(write_end)
    try:
        ready, _, _ = select.select([read_end], [], [], seconds)
        output = os.read(read_end, 4096).decode("utf-8", "replace") if ready else ""
        return output, _wait_for_exit(pid, seconds if ready else 0.0)
    finally:
        os.close(read_end)


def _wait_for_exit(pid: int, seconds: float) -> int | None:
    """Return the exit status of a process, or kill it after `seconds` and return `None`."""
    deadline = time.monotonic() + seconds
    while True:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.01)
