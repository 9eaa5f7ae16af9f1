"""Write one process's places to disk at once, because a signal may end the process the next moment.

A process has two files: `NAME.jsonl`, with a line for each place when it is first recorded, and
`NAME.counts`, with a count of eight bytes for each place, in memory that the kernel keeps when the process
dies. A process without places writes only what it allocated, if it imported torch. A process that cannot
write (the report was made and the folder is gone, the disk is full) continues without.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
from types import FrameType
from typing import Any, TypeAlias

from accel_simulated.detector import attribution
from accel_simulated.detector.attribution import Owner

__all__ = ["MAX_PLACES", "NOT_RECORDED", "Counter", "Log"]

#: How many places a process can have: 64 KiB of counts.
MAX_PLACES = 8192
#: A place's index in the table of counts.
Counter: TypeAlias = int
#: The counter of a place that is not recorded.
NOT_RECORDED = -1


class Log:
    """The places of this process, and how often each ran."""

    def __init__(self, folder: str, own: str = "") -> None:
        """Write into `folder`; `own` is torch's type of the simulated device."""
        self._folder = folder
        self._own = own
        self._reset()
        # A forked child has no places yet, and must not write into its parent's files.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Forget all places and files."""
        self._numbers = itertools.count()
        self._file = ""
        self._counts: Any = None
        self._broken = False
        #: The counters by the caller's code, instruction and what it did, for calls after the first.
        self._calls: dict[tuple[int, int, str], Counter] = {}
        #: Keeps these codes alive: another code could get the id of one that is gone.
        self._codes: list[object] = []
        self._places: dict[tuple[str, int, str, str], Counter] = {}
        #: By file, line and device type, for an error that appears when the place is known.
        self._lines: dict[tuple[str, int, str], Counter] = {}
        self._failed: set[Counter] = set()

    def record(
        self, frame: FrameType, kind: str, what: str, device_type: str, word: str = ""
    ) -> Counter:
        """Count one more `what` ("torch.cuda.synchronize()") for the caller at `frame`; return the counter.

        Returns `NOT_RECORDED` if torch itself is the caller. `word` is as in `counter_of`.
        """
        key = (id(frame.f_code), frame.f_lasti, what)
        counter = self._calls.get(key)
        if counter is None:
            user = attribution.user_frame(frame)
            counter = NOT_RECORDED
            if user is not None:
                counter = self.counter_of(user, kind, what, device_type, word)
            # Through Python's library each call may come from another place.
            if attribution.owner_of(frame) is not Owner.FORWARDER:
                self._codes.append(frame.f_code)
                self._calls[key] = counter
        self.count(counter)
        return counter

    def count(self, counter: Counter) -> None:
        """Count a place once more."""
        if counter >= 0:
            self._counts[counter] += 1

    def counter_of(
        self, user: FrameType, kind: str, what: str, device_type: str, word: str = ""
    ) -> Counter:
        """Return the counter of the place at which a user's frame is.

        `word` is the vendor's name in a string that torch received. A name of the simulated device itself
        counts only if the user's file spells it: `tensor.device.type` and `acc.device_name()` return the
        name of every device.
        """
        file, line = user.f_code.co_filename, user.f_lineno or 0
        if word and device_type == self._own and not attribution.has_string(file, word):
            return NOT_RECORDED
        key = (file, line, kind, what)
        counter = self._places.get(key)
        if counter is None:
            counter = self._add_place(file, line, kind, what, device_type)
            self._places[key] = counter
            self._lines[file, line, device_type] = counter
        return counter

    def record_error(self, counter: Counter, error: str) -> None:
        """Record the first error of a place."""
        if counter >= 0 and counter not in self._failed:
            self._failed.add(counter)
            self._write({"place": counter, "raised": error})

    def counter_at_line(self, frame: FrameType, device_type: str) -> Counter:
        """Return the counter of a place on the frame's line that names the device type."""
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        return self._lines.get((file, line, device_type), NOT_RECORDED)

    def add_note(self, text: str) -> None:
        """Record what cannot be detected in this process."""
        self._write({"note": text})

    def record_allocation(self, size: int) -> None:
        """Record the most bytes that this process had on a device at one time."""
        self._write({"allocated": size})

    def _add_place(
        self, file: str, line: int, kind: str, what: str, device_type: str
    ) -> Counter:
        """Write a new place; return its counter, or `NOT_RECORDED` if there is no room for it."""
        number = next(self._numbers)
        if number == MAX_PLACES:
            self.add_note(
                f"a process has more than {MAX_PLACES} places: the others are not here"
            )
        if number >= MAX_PLACES:
            return NOT_RECORDED
        entry = {
            "place": number,
            # In full: a relative path is relative to the current folder, which may change.
            "file": os.path.abspath(file),
            "line": line,
            "kind": kind,
            "what": what,
            "type": device_type,
        }
        return number if self._write(entry) else NOT_RECORDED

    def _write(self, entry: dict[str, Any]) -> bool:
        """Append a line to this process's file; return whether the file can be written."""
        if self._broken or not (self._file or self._create_files()):
            return False
        try:
            # Opened for each line: once a daemon has closed all files, a number that we kept is another file.
            file = os.open(
                self._file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(file, json.dumps(entry).encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            self._broken = True
        return not self._broken

    def _create_files(self) -> bool:
        """Create this process's two files; return whether that succeeded."""
        name = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(4).hex()}")
        try:
            counts = os.open(
                f"{name}.counts",
                os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC,
                0o600,
            )
            try:
                # All of it now: to write where the disk has no room would end the process.
                os.posix_fallocate(counts, 0, MAX_PLACES * 8)
                self._counts = memoryview(mmap.mmap(counts, MAX_PLACES * 8)).cast("Q")
            finally:
                os.close(counts)
        except (OSError, ValueError):
            self._broken = True
            return False
        self._file = f"{name}.jsonl"
        return self._write({"pid": os.getpid(), "arguments": getattr(sys, "argv", [])})
