"""Start a child process by a fork, so that the child does not repeat the parent's imports."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from accel_core.sandbox import child

__all__ = ["ForkedChild", "child_starter"]


def child_starter() -> Callable[..., Any] | None:
    """Return `ForkedChild` if this process can be forked instead of starting a new process, or `None` if not.

    Call this function before torch is imported, because a forked child cannot undo the effects of that
    import.
    """
    if sys.platform != "linux":
        return None
    # A forked child could not undo the effects of importing torch, and would lack the other threads.
    if "torch" in sys.modules or threading.active_count() > 1:
        return None
    # A package in ACCEL_IMPORT may initialize a device in this process.
    if os.environ.get("ACCEL_IMPORT"):
        return None
    # A new process would not get this process's -W options.
    if sys.warnoptions:
        return None
    return ForkedChild


class ForkedChild:
    """A forked child process that runs `child.main`, with the members of `Popen` that `child.run` uses."""

    def __init__(
        self,
        command: list[str],
        *,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        **_ignored: object,
    ) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # Otherwise the child process would write the buffered text again.
        self._status: int | None = None
        self.pid = os.fork()
        # A separate process group keeps Ctrl-C from the child. Both the parent and the child set the group,
        # because either may run first.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)
        if self.pid == 0:  # This is the child process.
            # The command's last argument is the folder in which the child finds its job.
            _run_child_and_exit([stdin, stdout, stderr], folder=command[-1])

    def poll(self) -> int | None:
        """Return the child's exit status, which is negative for a signal, or `None` while the child runs."""
        if self._status is None:
            # The process id is 0 while the child runs.
            ended_pid, status = os.waitpid(self.pid, os.WNOHANG)
            if ended_pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait until the child ends, and return its exit status, which is negative for a signal.

        Raises `subprocess.TimeoutExpired` if the child has not ended after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            status = self.poll()
            if status is not None:
                return status
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a forked child", timeout)
            time.sleep(0.002)


def _run_child_and_exit(files: list[Any], folder: str) -> NoReturn:
    """Replace the standard streams with `files`, run `child.main`, and exit; called in the forked process."""
    try:
        # The standard streams have the numbers 0, 1 and 2.
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        # Only the parent process shows progress to the user.
        child.supervision.progress = None
        child.main(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        # Reached only after an error, because child.main() ends the process.
        os._exit(1)
