"""Join the findings of a run's processes into one report."""

from __future__ import annotations

import json
import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel_simulated.detector import advice
from accel_simulated.detector.log import PLACES

__all__ = ["Place", "Report", "gather"]


@dataclass
class Place:
    """One line of code that does one thing for one vendor."""

    #: As people read it: relative to the folder of the run, or to the one that packages are installed in.
    file: str
    line: int
    #: A key of `advice.KINDS`.
    kind: str
    #: `"torch.cuda.synchronize()"`.
    what: str
    #: The device type of torch's that it is written for.
    type: str
    #: The installed package that the file belongs to; empty for what is under the folder of the run.
    package: str
    #: The line itself, without blanks around it; empty where the file is gone.
    text: str
    times: int = 0
    #: The first error, such as "AssertionError: Torch not compiled with CUDA enabled"; empty for none.
    raised: str = ""

    @property
    def instead(self) -> str:
        """Return the replacement for the code at this place."""
        return advice.instead(self.kind, self.what, self.type)


@dataclass
class Report:
    """The findings of a run."""

    #: The command, as it was given.
    command: list[str]
    #: What was simulated: `"acme:2"`.
    simulated: str
    #: The command's exit status.
    status: int
    #: How many processes found something.
    processes: int = 0
    #: What could not be seen.
    notes: list[str] = field(default_factory=list)
    #: Each place once, the file with most first, and the line with most in each.
    places: list[Place] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """Return a clause that says that the command failed; empty if it succeeded."""
        if self.status == 0:
            return ""
        return f"the command failed (exit status {self.status}), so the report is incomplete"

    @property
    def assumptions(self) -> list[Place]:
        """Return the places that must be changed."""
        return [place for place in self.places if place.kind != "ask"]

    @property
    def asks(self) -> list[Place]:
        """Return the places that only check whether a vendor's device is present."""
        return [place for place in self.places if place.kind == "ask"]


def gather(
    folder: Path, root: Path, command: list[str], simulated: str, status: int
) -> Report:
    """Join the files of `folder`; `root` is the folder in which the command was started.

    The file of a killed process may end early; complete lines of it are used.
    """
    report = Report(command, simulated, status)
    found: dict[tuple[str, int, str, str], Place] = {}
    for told in sorted(folder.glob("*.jsonl")):
        report.processes += 1
        counts = _counts(told.with_suffix(".counts"))
        numbered: dict[int, Place] = {}
        for entry in _entries(told):
            if "note" in entry and entry["note"] not in report.notes:
                report.notes.append(entry["note"])
            elif "what" in entry:
                key = entry["file"], entry["line"], entry["kind"], entry["what"]
                if key not in found:
                    found[key] = _place(entry, root)
                numbered[entry["place"]] = found[key]
                found[key].times += counts[entry["place"]]
            elif "raised" in entry:
                place = numbered[entry["place"]]
                place.raised = place.raised or entry["raised"]
    report.places = _sorted([place for place in found.values() if place.times])
    return report


def _sorted(places: list[Place]) -> list[Place]:
    totals: dict[str, int] = {}
    for place in places:
        totals[place.file] = totals.get(place.file, 0) + place.times
    return sorted(
        places, key=lambda p: (-totals[p.file], p.file, -p.times, p.line, p.what)
    )


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _counts(file: Path) -> memoryview:
    return memoryview(file.read_bytes().ljust(PLACES * 8, b"\0")).cast("Q")


def _place(entry: dict[str, Any], root: Path) -> Place:
    path = entry["file"]
    file, package = _shown(path, root)
    text = linecache.getline(path, entry["line"]).strip()
    return Place(
        file, entry["line"], entry["kind"], entry["what"], entry["of"], package, text
    )


def _shown(path: str, root: Path) -> tuple[str, str]:
    """A file's name for people, and its package."""
    for folder in ("site-packages", "dist-packages"):
        head, found, tail = path.rpartition(f"{os.sep}{folder}{os.sep}")
        if found and head:
            return Path(tail).as_posix(), Path(tail).parts[0].removesuffix(".py")
    for one, other in ((Path(path), root), (Path(path).resolve(), root.resolve())):
        if one.is_relative_to(other):
            return one.relative_to(other).as_posix(), ""
    return Path(path).as_posix(), Path(path).parent.name
