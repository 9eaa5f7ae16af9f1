"""Write the recorded places of one process to disk immediately, because a signal may end the process.

A process writes two files. `NAME.jsonl` has a line for each place, written when the place is first recorded.
`NAME.counts` has a count of eight bytes for each place; the file is mapped into memory, so that the kernel
keeps the counts when the process dies. A process without places writes only the memory that it allocated, if
it imported torch. A process that cannot write, because the folder was removed or the disk is full, continues
without recording.
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

#: The maximum number of places of a process, whose counts take 64 KiB.
MAX_PLACES = 8192
#: A place's index in the table of counts.
Counter: TypeAlias = int
#: The counter of places that are not recorded.
NOT_RECORDED = -1


class Log:
    """The recorded places of this process, and the number of times that each ran."""

    def __init__(self, folder: str, own: str = "") -> None:
        """Write into `folder`; `own` is torch's type of the simulated device, such as `"cuda"`."""
        self._folder = folder
        self._own = own
        self._reset()
        # A forked child starts without places, and must not write into its parent's files.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Forget all recorded places and the names of this process's files."""
        self._numbers = itertools.count()
        self._file = ""
        self._counts: Any = None
        self._broken = False
        #: Counters by the caller's code, its instruction and the recorded use, for calls after the first.
        self._calls: dict[tuple[int, int, str], Counter] = {}
        #: References to these code objects, because a new object could get the id of a freed one.
        self._codes: list[object] = []
        self._places: dict[tuple[str, int, str, str], Counter] = {}
        #: Counters by file, line and device type, for errors that are raised after the place was recorded.
        self._lines: dict[tuple[str, int, str], Counter] = {}
        self._failed: set[Counter] = set()

    def record(
        self, frame: FrameType, kind: str, what: str, device_type: str, word: str = ""
    ) -> Counter:
        """Count one use for the caller at `frame`, and return the counter.

        `what` is the use, such as `"torch.cuda.synchronize()"`, and `word` is as in `counter_of`. Returns
        `NOT_RECORDED` if the caller is torch itself.
        """
        key = (id(frame.f_code), frame.f_lasti, what)
        counter = self._calls.get(key)
        if counter is None:
            user = attribution.user_frame(frame)
            counter = NOT_RECORDED
            if user is not None:
                counter = self.counter_of(user, kind, what, device_type, word)
            # A frame of Python's library may forward calls from different places.
            if attribution.owner_of(frame) is not Owner.FORWARDER:
                self._codes.append(frame.f_code)
                self._calls[key] = counter
        self.count(counter)
        return counter

    def count(self, counter: Counter) -> None:
        """Increase the count of a place by one."""
        if counter >= 0:
            self._counts[counter] += 1

    def counter_of(
        self, user: FrameType, kind: str, what: str, device_type: str, word: str = ""
    ) -> Counter:
        """Return the counter of the place in user code that the frame runs.

        `word` is the vendor's name in a string that torch received. The name of the simulated device is
        counted only if the user's file contains that name as a literal: the string may also come from
        `tensor.device.type` or `acc.device_name()`, which are portable.
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
        """Record an error raised at a place; only the first error of each place is kept."""
        if counter >= 0 and counter not in self._failed:
            self._failed.add(counter)
            self._write({"place": counter, "raised": error})

    def counter_at_line(self, frame: FrameType, device_type: str) -> Counter:
        """Return the counter of a place for the device type on the line that the frame runs."""
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        return self._lines.get((file, line, device_type), NOT_RECORDED)

    def add_note(self, text: str) -> None:
        """Record a note about uses that cannot be detected in this process."""
        self._write({"note": text})

    def record_allocation(self, size: int) -> None:
        """Record the peak number of bytes that this process allocated on a device."""
        self._write({"allocated": size})

    def _add_place(
        self, file: str, line: int, kind: str, what: str, device_type: str
    ) -> Counter:
        """Write a new place and return its counter; return `NOT_RECORDED` if the table of counts is full."""
        number = next(self._numbers)
        if number == MAX_PLACES:
            self.add_note(
                f"a process has more than {MAX_PLACES} places; further places are missing"
            )
        if number >= MAX_PLACES:
            return NOT_RECORDED
        entry = {
            "place": number,
            # The path is written in full, because the current folder may change.
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
            # The file is opened for each line: if a daemon closes all files, a stored descriptor may refer to
            # a different file.
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
                # The disk space is reserved now: a write to a mapped page without disk space would kill the
                # process.
                os.posix_fallocate(counts, 0, MAX_PLACES * 8)
                self._counts = memoryview(mmap.mmap(counts, MAX_PLACES * 8)).cast("Q")
            finally:
                os.close(counts)
        except (OSError, ValueError):
            self._broken = True
            return False
        self._file = f"{name}.jsonl"
        return self._write({"pid": os.getpid(), "arguments": getattr(sys, "argv", [])})
