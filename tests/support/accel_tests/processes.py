"""Threads beside a test, and processes below it, found by a variable of their environment (Linux)."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path


@contextlib.contextmanager
def in_threads(*works, seconds=60):
    """Run each of these in a thread of its own during the block; all have ended after it."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads)


def until(condition, timeout=10):
    """Wait until it is true: True, or an `AssertionError` after so many seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
    return True


def gone(pid):
    """Whether that process ends soon (as an orphan it may stay a zombie where init does not reap)."""

    def ended():
        try:
            return (
                Path("/proc", str(pid), "stat")
                .read_text()
                .rpartition(")")[2]
                .split()[0]
                == "Z"
            )
        except OSError:
            return True

    return until(ended)


def left_of(variable, patience=1.0):
    """The processes with `NAME=value` in their environment that outlive `patience` seconds; ended then."""
    end = time.monotonic() + patience
    while pids := _with(variable.encode()):
        if time.monotonic() > end:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return pids
        time.sleep(0.05)
    return []


def _with(variable):
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if variable in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def fork_amid(lock, works):
    """Whether `works()` in a child, forked while another thread holds the lock, which is dead there."""
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock.held():
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if works() else 1)
    done.set()
    thread.join(10)
    return os.waitpid(pid, 0)[1] == 0
