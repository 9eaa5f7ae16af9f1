"""The child process of `child`: it takes its job, calls the function and says what came of it.

A module of its own, for a child needs nothing of what starts and watches one.
"""

from __future__ import annotations

import json
import os
import sys

from accel_core._support.interpreter import end_after, end_with_parent

__all__ = ["main"]

#: Bytes beyond which no file of a child's grows.
_LARGEST_FILE = 1 << 30


def main() -> None:
    """Run the job that stands on stdin; the answer goes to stdout, everybody else's output to stderr."""
    job = json.loads(_all_of(0))
    _close_stdin()
    end_with_parent(job["parent"])
    _limit_files()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        # On a line of its own, whatever was printed before and not ended.
        channel.write(f"\n{job['nonce']} {json.dumps(line)}\n")
        channel.flush()

    def stage(what: str, seconds: float | None = None) -> None:
        limit = job["longest"] * (job["seconds"] if seconds is None else seconds)
        end_after(limit + job["grace"] if limit else 0)
        say(stage=what, **({} if seconds is None else {"seconds": seconds}))

    stage("start")
    if job["log"]:
        from accel_core._support.log import LOGGER, Relay

        LOGGER.addHandler(Relay(say))
        LOGGER.setLevel("INFO")
        LOGGER.propagate = False  # a vendor's own set-up of logging would show it twice
    module, _, name = job["function"].partition(":")
    from importlib import import_module

    say(answer=getattr(import_module(module), name)(job["arguments"], stage))
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a plugin may have taken one away
        stream.flush()  # what was printed, on its way to stderr
    os._exit(0)  # a vendor's exit handlers have nothing to say any more, and may hang


def _all_of(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _close_stdin() -> None:
    """Leave an empty stdin to whatever reads it from now on, such as a vendor's prompt."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _limit_files() -> None:
    """No file may grow without end, not even one of a process that has left our group."""
    try:
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        if now == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, most))
    except (ImportError, ValueError, OSError):
        pass
