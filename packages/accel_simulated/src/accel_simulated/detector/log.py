"""Write the vendor-specific places of a process to disk immediately, because a signal may end the process.

A process writes two files. `NAME.jsonl` has one line for each place, written when the place is first
recorded. `NAME.counts` has an eight-byte count for each place. The file is mapped into memory, so the kernel
keeps the counts if the process dies. A process that imported torch but has no places writes only the amount
of memory that it allocated. A process that cannot write, because the folder was removed or the disk is full,
continues without recording.
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

__all__ = [
    "COUNTS_SIZE",
    "MAX_PLACES",
    "NOT_RECORDED",
    "Counter",
    "Log",
]  # fmt: skip

#: The maximum number of places in a process.
MAX_PLACES = 8192
#: The size in bytes of the table of counts.
COUNTS_SIZE = MAX_PLACES * 8
#: A place's index in the table of counts.
Counter: TypeAlias = int
#: The counter that stands for any place that is not recorded.
NOT_RECORDED = -1


class Log:
    """A log of the vendor-specific code that this process ran, with the number of times it ran."""

    def __init__(self, folder: str, simulated_type: str = "") -> None:
        """Create a log in `folder`.

        `simulated_type` is the torch device type of the simulated device, such as `"cuda"`.
        """
        self._folder = folder
        self._simulated_type = simulated_type
        self._reset()
        # A forked child starts without places, and must not write into its parent's files.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Discard all recorded places, and the names of this process's files."""
        self._place_numbers = itertools.count()
        self._file = ""
        self._counts: Any = None
        self._cannot_write = False
        #: The counters by the caller's code object, its instruction and the recorded use, to speed up
        #: repeated calls.
        self._counter_of_call: dict[tuple[int, int, str], Counter] = {}
        #: References to these code objects, because a new object could get the id of a freed one.
        self._code_references: list[object] = []
        self._counter_of_place: dict[tuple[str, int, str, str], Counter] = {}
        #: Counters by file, line and device type, for errors that are raised after the place was recorded.
        self._counter_of_line: dict[tuple[str, int, str], Counter] = {}
        self._counters_with_error: set[Counter] = set()

    def record(
        self,
        frame: FrameType,
        kind: str,
        what: str,
        device_type: str,
        name_in_string: str = "",
    ) -> Counter:
        """Count a use of a vendor's name in the code that `frame` runs, and return the counter.

        `what` is the code that uses the name, such as `"torch.cuda.synchronize()"`. `name_in_string` has the
        same meaning as in `find_or_add_counter`. Returns `NOT_RECORDED` if torch itself uses the name.
        """
        # The place of a call in the code: the code object and the current instruction.
        key = (id(frame.f_code), frame.f_lasti, what)
        counter = self._counter_of_call.get(key)
        if counter is None:
            user_frame = attribution.nearest_user_frame(frame)
            counter = NOT_RECORDED
            if user_frame is not None:
                counter = self.find_or_add_counter(
                    user_frame, kind, what, device_type, name_in_string
                )
            # A frame of Python's library may forward calls from different places.
            if attribution.find_owner(frame) is not Owner.FORWARDER:
                self._code_references.append(frame.f_code)
                self._counter_of_call[key] = counter
        self.count(counter)
        return counter

    def count(self, counter: Counter) -> None:
        """Count one more use at a recorded place in the program. Does nothing for `NOT_RECORDED`."""
        if counter != NOT_RECORDED:
            self._counts[counter] += 1

    def find_or_add_counter(
        self,
        user_frame: FrameType,
        kind: str,
        what: str,
        device_type: str,
        name_in_string: str = "",
    ) -> Counter:
        """Return the counter for the current line of a user's stack frame, and add the place if it is new.

        `name_in_string` is the vendor's name in a string that torch received, or an empty string if torch
        received none.

        A name that is also the simulated device's name is recorded only if a string literal in the user's
        file begins with it. Otherwise the string may come from portable code, such as `tensor.device.type` or
        `acc.device_name()`.
        """
        file, line = user_frame.f_code.co_filename, user_frame.f_lineno or 0
        is_simulated_name = name_in_string and device_type == self._simulated_type
        # Without a literal in the file, the name may come from portable code, such as `acc.device_name()`.
        if is_simulated_name and not attribution.file_has_string_starting_with(
            file, name_in_string
        ):
            return NOT_RECORDED
        key = (file, line, kind, what)
        counter = self._counter_of_place.get(key)
        if counter is None:
            counter = self._add_place(file, line, kind, what, device_type)
            self._counter_of_place[key] = counter
            self._counter_of_line[file, line, device_type] = counter
        return counter

    def record_error(self, counter: Counter, error: str) -> None:
        """Record an error raised at a place in the program. Only the first error of each place is kept."""
        if counter == NOT_RECORDED:
            return
        if counter not in self._counters_with_error:
            self._counters_with_error.add(counter)
            self._write({"place": counter, "raised": error})

    def find_counter_at_line(self, frame: FrameType, device_type: str) -> Counter:
        """Return the counter recorded for this device type on the line of code that `frame` is running.

        Returns `NOT_RECORDED` if nothing has been recorded on that line.
        """
        file, line = frame.f_code.co_filename, frame.f_lineno or 0
        return self._counter_of_line.get((file, line, device_type), NOT_RECORDED)

    def add_note(self, text: str) -> None:
        """Add a note about vendor-specific uses that cannot be detected in this process."""
        self._write({"note": text})

    def record_source(self, file: str) -> None:
        """Record that this process ran one of the user's source files."""
        self._write({"source": os.path.abspath(file)})

    def record_allocation(self, size: int) -> None:
        """Record the peak number of bytes that this process allocated on a device."""
        self._write({"allocated": size})

    def _add_place(
        self, file: str, line: int, kind: str, what: str, device_type: str
    ) -> Counter:
        """Write a new place to the log file, and return its counter.

        Returns `NOT_RECORDED` if the table of counts is full, or if the file cannot be written.
        """
        number = next(self._place_numbers)
        if number == MAX_PLACES:  # the first place too many; the note is written once
            self.add_note(f"the places after the first {MAX_PLACES} in a process")
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
        is_written = self._write(entry)
        return number if is_written else NOT_RECORDED

    def _write(self, entry: dict[str, Any]) -> bool:
        """Append a line to this process's log file, and return whether that succeeded."""
        if self._cannot_write:
            return False
        if not self._file and not self._create_files():
            return False
        try:
            # The file is opened for each line: after a daemon has closed all files, a stored descriptor could
            # belong to a different file.
            descriptor = os.open(
                self._file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, json.dumps(entry).encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            self._cannot_write = True
            return False
        return True

    def _create_files(self) -> bool:
        """Create the two files of this process, and return whether that succeeded."""
        name = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(4).hex()}")
        try:
            counts_file = os.open(
                f"{name}.counts",
                os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC,
                0o600,
            )
            try:
                # The disk space is reserved now: a write to a mapped page without disk space would kill the
                # process.
                os.posix_fallocate(counts_file, 0, COUNTS_SIZE)
                mapped_file = mmap.mmap(counts_file, COUNTS_SIZE)
                self._counts = memoryview(mapped_file).cast("Q")  # unsigned, 64 bits
            finally:
                os.close(counts_file)
        except (OSError, ValueError):
            self._cannot_write = True
            return False
        self._file = f"{name}.jsonl"
        return self._write({"pid": os.getpid(), "arguments": getattr(sys, "argv", [])})
