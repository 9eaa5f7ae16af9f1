"""A child process that goes on from this one, which has imported torch: that costs more than all else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from accel_core.sandbox import child

__all__ = ["Forked", "way_to_start"]


def way_to_start() -> Callable[..., Any] | None:
    """Return `Forked`, which starts a child process; `None` where a fork might not be as a new process is.

    Call it before torch is imported: what torch has done before, a child of a fork could not undo.
    """
    fresh = "torch" not in sys.modules and threading.active_count() == 1
    # A package of ACCEL_IMPORT may start a device in this process. Options for warnings a child does not get.
    alike = not os.environ.get("ACCEL_IMPORT") and not sys.warnoptions
    return Forked if sys.platform == "linux" and fresh and alike else None


class Forked:
    """A fork of this process that runs `child.main`; it has as much of `Popen` as `child.run` uses."""

    def __init__(
        self,
        command: list[str],
        *,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        **_same: object,
    ) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # else both would write what is left
        self._status: int | None = None
        self.pid = os.fork()
        # On both sides, as either may come first. Ctrl-C reaches this group only.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)
        if self.pid == 0:
            _become_child([stdin, stdout, stderr], folder=command[-1])

    def poll(self) -> int | None:
        """Return the status, negative for a signal; `None` while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float = float("inf")) -> int:
        """Return the status once it has ended; raises `TimeoutExpired` after `timeout` seconds."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.002)
        return status


def _become_child(files: list[Any], folder: str) -> None:
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        child.supervision.progress = None
        child.main(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
