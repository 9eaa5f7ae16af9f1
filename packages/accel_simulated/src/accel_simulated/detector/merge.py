"""Merge the files of a run's processes into one report."""

from __future__ import annotations

import json
import linecache
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel_simulated.detector import advice
from accel_simulated.detector.log import MAX_PLACES

__all__ = ["Place", "Report", "merge"]

#: The most bytes that a program allocates on a device without using it: a scalar or two, as for a barrier.
_SCALARS = 1024


@dataclass
class Place:
    """One vendor-specific use in one line of code."""

    #: The file's path, relative to the folder of the run, or to the folder in which packages are installed.
    file: str
    line: int
    #: A key of `advice.KINDS`.
    kind: str
    #: The use, such as `"torch.cuda.synchronize()"`.
    what: str
    #: The torch device type for which the code is written.
    type: str
    #: The installed package that the file belongs to; empty for a file below the folder of the run.
    package: str
    #: The source line without surrounding blanks; empty if the file no longer exists.
    text: str
    times: int = 0
    #: The first error, such as "AssertionError: Torch not compiled with CUDA enabled"; empty if none was
    #: raised.
    raised: str = ""

    @property
    def instead(self) -> str:
        """Return the replacement for the code at this place."""
        return advice.replacement(self.kind, self.what, self.type)


@dataclass
class Report:
    """The result of a run: its outcome, and the recorded places."""

    #: The command as the user typed it.
    command: list[str]
    #: The simulated device and the number of devices, such as `"acme:2"`.
    simulated: str
    #: The command's exit status.
    status: int
    #: The number of processes that recorded a place or a note.
    processes: int = 0
    #: The largest peak of allocated bytes in one process; `None` if no process that imported torch recorded
    #: its peak, which happens if a signal kills the process.
    allocated: int | None = None
    #: Notes on uses that could not be recorded.
    notes: list[str] = field(default_factory=list)
    #: All places, each once. Files and lines with the most calls come first.
    places: list[Place] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return whether the command failed; then the report may lack code that did not run."""
        return self.status != 0

    @property
    def used_device(self) -> bool | None:
        """Return whether the program allocated more than scalars on the device; `None` if unknown."""
        return None if self.allocated is None else self.allocated > _SCALARS

    @property
    def outcome(self) -> str:
        """Return the outcome of the run in one or two sentences."""
        device = f"{self.simulated} (simulated)"
        if self.failed:
            failure = f"The program failed (exit status {self.status}): code that did not run is not listed."
            size = self._allocated()
            return f"{failure} {size} allocated on {device}." if size else failure
        if self.used_device is None:
            return "The program ended without an error."
        if self.used_device:
            return f"The program ran on {device}. {self._allocated()} allocated there."
        return f"The program ran on the CPU. {self._allocated()} allocated on {device}."

    @property
    def assumptions(self) -> list[Place]:
        """Return the places that must be changed for other devices."""
        return [place for place in self.places if place.kind != "ask"]

    @property
    def asks(self) -> list[Place]:
        """Return the places that only check whether a vendor's device is present."""
        return [place for place in self.places if place.kind == "ask"]

    def _allocated(self) -> str:
        """Return the beginning of a sentence about the allocated memory; empty if the amount is unknown."""
        if self.allocated is None:
            return ""
        if self.used_device:
            return f"Up to {self.allocated / 1024:,.1f} KiB were"
        return f"Only {self.allocated} bytes were" if self.allocated else "Nothing was"


def merge(
    folder: Path, root: Path, command: list[str], simulated: str, status: int
) -> Report:
    """Return the report merged from the files in `folder`.

    `root` is the folder in which the command was started. The file of a killed process may be truncated; its
    complete lines are used.
    """
    report = Report(command, simulated, status)
    merger = _Merger(report, root)
    for file in sorted(folder.glob("*.jsonl")):
        merger.add_process(file)
    report.places = _sorted([place for place in merger.places if place.times])
    return report


class _Merger:
    """Adds the files of each process to a report."""

    def __init__(self, report: Report, root: Path) -> None:
        self._report = report
        self._root = root
        self._places: dict[tuple[str, int, str, str], Place] = {}

    @property
    def places(self) -> list[Place]:
        return list(self._places.values())

    def add_process(self, file: Path) -> None:
        """Add the places, notes and allocation of one process."""
        counts = _counts(file.with_suffix(".counts"))
        numbered: dict[int, Place] = {}
        has_findings = False
        for entry in _entries(file):
            if "note" in entry:
                self._add_note(entry["note"])
            elif "what" in entry:
                number = entry["place"]
                numbered[number] = self._place(entry)
                numbered[number].times += counts[number]
            elif "raised" in entry:
                place = numbered[entry["place"]]
                place.raised = place.raised or entry["raised"]
            elif "allocated" in entry:
                self._add_allocation(entry["allocated"])
            has_findings = has_findings or "note" in entry or "what" in entry
        self._report.processes += has_findings

    def _add_note(self, note: str) -> None:
        if note not in self._report.notes:
            self._report.notes.append(note)

    def _add_allocation(self, size: int) -> None:
        self._report.allocated = max(self._report.allocated or 0, size)

    def _place(self, entry: dict[str, Any]) -> Place:
        """Return the place of an entry; the same place in several processes is one object."""
        key = entry["file"], entry["line"], entry["kind"], entry["what"]
        if key not in self._places:
            file, package = _display_name(entry["file"], self._root)
            text = linecache.getline(entry["file"], entry["line"]).strip()
            self._places[key] = Place(
                file=file,
                line=entry["line"],
                kind=entry["kind"],
                what=entry["what"],
                type=entry["type"],
                package=package,
                text=text,
            )
        return self._places[key]


def _sorted(places: list[Place]) -> list[Place]:
    """Return the places sorted by their number of calls: the file with the most calls first."""
    totals: Counter[str] = Counter()
    for place in places:
        totals[place.file] += place.times
    return sorted(
        places, key=lambda p: (-totals[p.file], p.file, -p.times, p.line, p.what)
    )


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a process's file."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _counts(file: Path) -> memoryview:
    """Return the counts of a process's places, padded with zeros."""
    return memoryview(file.read_bytes().ljust(MAX_PLACES * 8, b"\0")).cast("Q")


def _display_name(path: str, root: Path) -> tuple[str, str]:
    """Return a file's path as displayed, and the file's package."""
    for folder in ("site-packages", "dist-packages"):
        head, separator, inside = path.rpartition(f"{os.sep}{folder}{os.sep}")
        if separator and head:
            name = Path(inside)
            return name.as_posix(), name.parts[0].removesuffix(".py")
    file = Path(path)
    for given, base in ((file, root), (file.resolve(), root.resolve())):
        if given.is_relative_to(base):
            return given.relative_to(base).as_posix(), ""
    return file.as_posix(), file.parent.name
