"""Merge the files that a run's processes wrote into one report."""

from __future__ import annotations

import json
import linecache
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from accel_simulated.detector import advice, source
from accel_simulated.detector.log import COUNTS_SIZE

__all__ = ["Place", "Report", "merge"]

#: The maximum number of bytes, such as one scalar for a barrier, that a program can allocate without being
#: considered to use the device.
_MAX_SCALAR_BYTES = 1024
#: The package of a file that belongs to the user's project.
_OF_PROJECT = ""


@dataclass
class Place:
    """A place in a program that uses a vendor's name: a line of code, and the use in that line."""

    #: The file's path, relative to the folder of the run or to the folder of installed packages, or absolute
    #: if the file is in neither.
    file: str
    line: int
    #: A key of `advice.KINDS`.
    kind: str
    #: The code that uses the name, such as `"torch.cuda.synchronize()"`.
    what: str
    #: The torch device type that the code targets.
    type: str
    #: The installed package that contains the file, or an empty string for a file below the folder of the
    #: run. For a file in neither, the name of its folder.
    package: str
    #: The source line without surrounding whitespace, or an empty string if the file no longer exists.
    text: str
    times: int = 0
    #: The first error raised at this place, such as "AssertionError: Torch not compiled with CUDA enabled",
    #: or an empty string if none was raised.
    raised: str = ""

    @property
    def instead(self) -> str:
        """Return the suggested replacement for a vendor-specific piece of code that the report lists."""
        return advice.replacement(self.kind, self.what, self.type)


@dataclass
class Report:
    """A report on a recorded run, with its outcome and the places where the program uses a vendor's name."""

    #: The command as the user typed it.
    command: list[str]
    #: The simulated device and the number of devices, such as `"acme:2"`.
    simulated: str
    #: The command's exit status.
    status: int
    #: The number of processes that recorded at least one place or note.
    processes: int = 0
    #: The highest peak of allocated bytes in any one process, or `None` if no process that imported torch
    #: recorded its peak, for example because a signal killed the process.
    allocated: int | None = None
    #: Notes on uses that could not be recorded.
    notes: list[str] = field(default_factory=list)
    #: All places without duplicates. The files and lines with the most calls come first.
    places: list[Place] = field(default_factory=list)
    #: The names of CUDA in the source files that ran, without the places that the run recorded. Their
    #: `times` is 0.
    source_places: list[Place] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return whether the recorded command failed, so that code after the failure was not recorded."""
        return self.status != 0

    @property
    def used_device(self) -> bool | None:
        """Return whether the program allocated more than a few scalars on the device.

        Returns `None` if the amount of allocated memory is not known.
        """
        if self.allocated is None:
            return None
        return self.allocated > _MAX_SCALAR_BYTES

    @property
    def outcome(self) -> str:
        """Return a description of the run's outcome in one or two sentences."""
        device = f"{self.simulated} (simulated)"
        if self.failed:
            failure = (
                f"The program failed (exit status {self.status}): code after the failure was not "
                "recorded."
            )
            if self.allocated is None:
                return failure
            return f"{failure} {self._describe_allocation(f'on {device}')}"
        if self.used_device is None:
            return "The program ended without an error."
        if self.used_device:
            return f"The program ran on {device}. {self._describe_allocation('there')}"
        allocation = self._describe_allocation(f"on {device}")
        return f"The program ran on the CPU. {allocation}"

    @property
    def places_to_change(self) -> list[Place]:
        """Return the places in the program that must change before it can run on other devices."""
        return [place for place in self.places if place.kind != advice.DEVICE_CHECK]

    @property
    def device_checks(self) -> list[Place]:
        """Return the places in the program that only check whether a vendor's device is present."""
        return [place for place in self.places if place.kind == advice.DEVICE_CHECK]

    def _describe_allocation(self, where: str) -> str:
        """Return a sentence about the allocated memory, which ends with the words `where`."""
        if not self.allocated:
            return f"Nothing was allocated {where}."
        if self.used_device:
            kib = self.allocated / 1024
            return f"Up to {kib:,.1f} KiB were allocated {where}."
        return f"Only {self.allocated} bytes were allocated {where}."


def merge(
    folder: Path, start_folder: Path, command: list[str], simulated: str, status: int
) -> Report:
    """Merge the files that the processes of a recorded run wrote into `folder`, and return a report.

    `start_folder` is the folder in which the command was started. The file of a killed process may be
    truncated, in which case its complete lines are used.
    """
    report = Report(command, simulated, status)
    merger = _Merger(report, start_folder)
    for file in sorted(folder.glob("*.jsonl")):
        merger.add_process(file)
    # A killed process may have written a place without counting a use of it.
    used_places = [place for place in merger.places if place.times]
    report.places = _sort_by_calls(used_places)
    report.source_places = merger.read_sources()
    return report


class _Merger:
    """A merger of the files that several processes wrote into a single report."""

    def __init__(self, report: Report, start_folder: Path) -> None:
        self._report = report
        self._start_folder = start_folder
        self._places: dict[tuple[str, int, str, str], Place] = {}
        #: The source files of the user's that ran.
        self._sources: set[str] = set()

    @property
    def places(self) -> list[Place]:
        return list(self._places.values())

    def add_process(self, file: Path) -> None:
        """Add the places, notes and allocated memory from the file of one process to the report."""
        counts = _read_counts(file.with_suffix(".counts"))
        place_by_number: dict[int, Place] = {}
        has_findings = False
        for entry in _read_entries(file):
            # The key of an entry's main value identifies its type.
            if "note" in entry:
                self._add_note(entry["note"])
                has_findings = True
            elif "what" in entry:
                number = entry["place"]
                place = self._find_or_add_place(entry)
                place.times += counts[number]
                place_by_number[number] = place
                has_findings = True
            elif "raised" in entry:
                place = place_by_number[entry["place"]]
                if not place.raised:
                    place.raised = entry["raised"]
            elif "source" in entry:
                self._sources.add(entry["source"])
            elif "allocated" in entry:
                self._raise_peak_allocation(entry["allocated"])
        if has_findings:
            self._report.processes += 1

    def read_sources(self) -> list[Place]:
        """Return the places that name CUDA in the source files that ran, except the recorded places."""
        recorded_by_file: dict[str, list[Place]] = {}
        for key, place in self._places.items():
            file, _line, _kind, _what = key
            recorded_by_file.setdefault(file, []).append(place)
        places = []
        for file in self._sources:
            recorded = recorded_by_file.get(file, [])
            for finding in source.find_cuda_names(file):
                is_recorded = any(
                    finding.is_recorded_as(place.line, place.what) for place in recorded
                )
                if not is_recorded:
                    places.append(
                        self._make_place(
                            file, finding.line, finding.kind, finding.what, "cuda"
                        )
                    )
        return sorted(places, key=lambda place: (place.package, place.file, place.line))

    def _add_note(self, note: str) -> None:
        if note not in self._report.notes:
            self._report.notes.append(note)

    def _raise_peak_allocation(self, size: int) -> None:
        """Set the report's number of allocated bytes to `size` if it is smaller or unknown."""
        if self._report.allocated is None or self._report.allocated < size:
            self._report.allocated = size

    def _find_or_add_place(self, entry: dict[str, Any]) -> Place:
        """Return the place that a log entry describes. Processes with the same place share one object."""
        key = entry["file"], entry["line"], entry["kind"], entry["what"]
        if key not in self._places:
            self._places[key] = self._make_place(*key, entry["type"])
        return self._places[key]

    def _make_place(
        self, file: str, line: int, kind: str, what: str, device_type: str
    ) -> Place:
        """Return a place in a source file, without uses."""
        shown_file = _find_shown_file(file, self._start_folder)
        return Place(
            file=shown_file.path,
            line=line,
            kind=kind,
            what=what,
            type=device_type,
            package=shown_file.package,
            text=linecache.getline(file, line).strip(),
        )


def _sort_by_calls(places: list[Place]) -> list[Place]:
    """Return the places grouped by file, with the files and lines that have the most calls first."""
    calls_in_file: Counter[str] = Counter()
    for place in places:
        calls_in_file[place.file] += place.times

    def sort_key(place: Place) -> tuple[int, str, int, int, str]:
        calls = calls_in_file[place.file]
        return -calls, place.file, -place.times, place.line, place.what

    return sorted(places, key=sort_key)


def _read_entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries in a process's log file, up to the first incomplete line."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _read_counts(file: Path) -> memoryview:
    """Return the counts of a process's places as 64-bit numbers, with 0 for each missing count."""
    content = file.read_bytes().ljust(COUNTS_SIZE, b"\0")
    return memoryview(content).cast("Q")  # unsigned, 64 bits


class _ShownFile(NamedTuple):
    """A source file as it appears in the report."""

    #: The path, which is relative where possible.
    path: str
    #: The package that the file belongs to, or an empty string for a file of the user's project.
    package: str


def _find_shown_file(path: str, start_folder: Path) -> _ShownFile:
    """Return how the report shows a source file, for a program that was started in `start_folder`."""
    for folder in ("site-packages", "dist-packages"):
        head, separator, path_in_folder = path.rpartition(f"{os.sep}{folder}{os.sep}")
        if separator and head:
            relative = Path(path_in_folder)
            package = relative.parts[0].removesuffix(".py")
            return _ShownFile(relative.as_posix(), package)
    file = Path(path)
    if file.is_relative_to(start_folder):
        relative = file.relative_to(start_folder)
        return _ShownFile(relative.as_posix(), package=_OF_PROJECT)
    # One of the two paths may contain symbolic links.
    real_file, real_start_folder = file.resolve(), start_folder.resolve()
    if real_file.is_relative_to(real_start_folder):
        relative = real_file.relative_to(real_start_folder)
        return _ShownFile(relative.as_posix(), package=_OF_PROJECT)
    # A file outside the project and the installed packages is shown as part of its folder.
    return _ShownFile(file.as_posix(), package=file.parent.name)
