"""One process's findings, written to disk at once: it may end by a signal the next moment.

Two files a process: `NAME.jsonl`, with a line for each place when it is first seen, and `NAME.counts`, a
count of eight bytes for each, in memory that the kernel keeps when the process dies. A process that finds
nothing writes nothing, and one that cannot write (the report was made and the folder is gone, the disk is
full) goes on without.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
from types import FrameType
from typing import Any, TypeAlias

from accel_simulated.detector import blame

__all__ = ["PLACES", "Counter", "Log"]

#: How many places a process can have: 64 KiB of counts.
PLACES = 8192
#: A count, as its place in the table of all.
Counter: TypeAlias = int
#: For a place that is not recorded.
NOT_RECORDED = -1


class Log:
    """The places that this process has found."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._begin()
        # A forked child has found nothing yet, and its parent's files are not its own.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._numbers = itertools.count()
        self._file = ""
        self._counts: Any = None
        self._broken = False
        #: By the caller's code, instruction and what it did: short for finding whose place it is again.
        self._calls: dict[tuple[int, int, str], Counter] = {}
        #: Those codes: the number of one that is gone would become another's.
        self._codes: list[object] = []
        self._places: dict[tuple[str, int, str, str], Counter] = {}
        #: By file, line and device type, for an error that shows when the place is known.
        self._lines: dict[tuple[str, int, str], Counter] = {}
        self._raised: set[Counter] = set()

    def seen(self, frame: FrameType, kind: str, what: str, of: str) -> Counter:
        """Count one more `what` ("torch.cuda.synchronize") for the caller at `frame`; return the counter.

        Returns `NOT_RECORDED` if torch's own code is the caller.
        """
        key = (id(frame.f_code), frame.f_lasti, what)
        counter = self._calls.get(key)
        if counter is None:
            found = blame.place(frame)
            counter = (
                NOT_RECORDED if found is None else self.place(found, kind, what, of)
            )
            # Through Python's library each call may come from another place.
            if blame.whose(frame) != blame.PASSED:
                self._codes.append(frame.f_code)
                self._calls[key] = counter
        if counter >= 0:
            self._counts[counter] += 1
        return counter

    def again(self, counter: Counter) -> None:
        """Count a place once more."""
        if counter >= 0:
            self._counts[counter] += 1

    def place(self, frame: FrameType, kind: str, what: str, of: str) -> Counter:
        """Return the counter of a place outside torch."""
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        key = (file, line, kind, what)
        counter = self._places.get(key)
        if counter is None:
            counter = self._place(file, line, kind, what, of)
            self._places[key] = counter
            self._lines[file, line, of] = counter
        return counter

    def raised(self, counter: Counter, text: str) -> None:
        """Record the first error of a place."""
        if counter >= 0 and counter not in self._raised:
            self._raised.add(counter)
            self._write({"place": counter, "raised": text})

    def at(self, frame: FrameType, of: str) -> Counter:
        """Return the counter of the line that `frame` is at, as a place that names the device type `of`."""
        return self._lines.get(
            (frame.f_code.co_filename, frame.f_lineno or 0, of), NOT_RECORDED
        )

    def note(self, text: str) -> None:
        """Record what cannot be detected in this process."""
        self._write({"note": text})

    def _place(self, file: str, line: int, kind: str, what: str, of: str) -> Counter:
        number = next(self._numbers)
        if number >= PLACES:
            if number == PLACES:
                self.note(
                    f"a process has more than {PLACES} places: the others are not here"
                )
            return NOT_RECORDED
        # In full: where it is relative, it is so to the folder of this moment.
        told = {
            "place": number,
            "file": os.path.abspath(file),
            "line": line,
            "kind": kind,
            "what": what,
            "of": of,
        }
        return number if self._write(told) else NOT_RECORDED

    def _write(self, told: dict[str, Any]) -> bool:
        if self._broken or not (self._file or self._open()):
            return False
        try:
            # Opened for each line: a number that is kept is another's file once a daemon has closed them all.
            file = os.open(
                self._file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(file, json.dumps(told).encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            self._broken = True
        return not self._broken

    def _open(self) -> bool:
        name = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(4).hex()}")
        try:
            counts = os.open(
                f"{name}.counts",
                os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC,
                0o600,
            )
            try:
                # All of it now: to write where the disk has no room would end the process.
                os.posix_fallocate(counts, 0, PLACES * 8)
                self._counts = memoryview(mmap.mmap(counts, PLACES * 8)).cast("Q")
            finally:
                os.close(counts)
        except (OSError, ValueError):
            self._broken = True
            return False
        self._file = f"{name}.jsonl"
        return self._write({"pid": os.getpid(), "arguments": getattr(sys, "argv", [])})
