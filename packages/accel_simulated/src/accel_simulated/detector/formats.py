"""Write a report as Markdown, JSON or SARIF."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from accel_simulated import __version__
from accel_simulated.detector import advice
from accel_simulated.detector.merge import Place, Report

__all__ = ["FORMATS", "as_json", "as_markdown", "as_sarif", "format_of"]

_HELP = (
    "The program ran on a simulated device. Each result is code that has no effect, fails or takes "
    "a different branch on another vendor's device. The result's message names the replacement in "
    "accel_core or torch.accelerator."
)
_PLACE_KEYS = (
    "file", "line", "package", "kind", "what", "type", "times", "raised", "text", "instead",
)  # fmt: skip


def as_markdown(report: Report) -> str:
    """Return the report as Markdown: the outcome, tables of packages and places, and the device checks."""
    lines = [
        "# Written for one vendor",
        "",
        report.outcome,
        "",
        f"`{shlex.join(report.command)}` on {report.simulated} (simulated), exit status {report.status}:",
        f"{_count(report.assumptions)}, and {_count(report.asks)} that only check for a device.",
        "",
        "`acc` is `accel_core.get_accelerator()`.",
    ]
    lines += [f"\nNot recorded: {note}." for note in report.notes]
    lines += _next_step(report)
    if report.assumptions:
        lines += _packages(report.assumptions)
        titles = ("line", "times", "what", "instead", "code", "raised")
        lines += _files(report.assumptions, titles)
    else:
        lines += ["", _nothing_recorded(report)]
    if report.asks:
        lines += [
            "",
            "## Device checks",
            "",
            "Code after such a check may not run on another vendor's device.",
        ]
        lines += _files(report.asks, ("line", "times", "what", "instead", "code"))
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    """Return the report as JSON; `schema` increases when the meaning of a key changes."""
    document = {
        "schema": 1,
        "command": report.command,
        "simulated": report.simulated,
        "status": report.status,
        "complete": not report.failed,
        "outcome": report.outcome,
        "allocated": report.allocated,
        "processes": report.processes,
        "notes": report.notes,
        "assumptions": [_json_place(place) for place in report.assumptions],
        "asks": [_json_place(place) for place in report.asks],
    }
    return json.dumps(document, indent=2) + "\n"


def _json_place(place: Place) -> dict[str, Any]:
    return {key: getattr(place, key) for key in _PLACE_KEYS}


def as_sarif(report: Report) -> str:
    """Return the report as SARIF 2.1.0 for code scanning, which shows only the project's own files.

    Vendor-specific code has the level "warning"; a check for a device has the level "note".
    """
    own = [place for place in report.places if not place.package]
    kinds = [kind for kind in advice.KINDS if any(place.kind == kind for place in own)]
    driver = {
        "name": "accel simulate",
        "version": __version__,
        "rules": [_sarif_rule(kind) for kind in kinds],
    }
    invocation = {
        "commandLine": shlex.join(report.command),
        "exitCode": report.status,
        "executionSuccessful": not report.failed,
        "toolExecutionNotifications": _sarif_notifications(report),
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_sarif_result(place, kinds) for place in own],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2) + "\n"


#: The function for each suffix of a report's file name.
FORMATS: dict[str, Callable[[Report], str]] = {
    ".md": as_markdown,
    ".json": as_json,
    ".sarif": as_sarif,
}


def format_of(file: str) -> Callable[[Report], str] | None:
    """Return the function that writes the format of a file's suffix; `None` for an unknown suffix."""
    return FORMATS.get(PurePath(file).suffix.lower())


# --- Markdown -------------------------------------------------------------------------------------------


def _nothing_recorded(report: Report) -> str:
    """Return the meaning of a report without vendor-specific code, which depends on the outcome."""
    if report.failed:
        return "No place was recorded before the program failed."
    if report.used_device:
        return "Nothing outside torch was written for one vendor's device."
    return "No place was recorded; code for a device did not run."


def _next_step(report: Report) -> list[str]:
    """Return lines with the command that runs a CUDA program to its end, if the program failed here."""
    is_for_cuda = any(place.type == "cuda" for place in report.places)
    came_to_end = not report.failed and report.used_device is not False
    if came_to_end or not is_for_cuda or report.simulated.startswith("cuda"):
        return []
    command = f"accel simulate --report cuda.md cuda -- {shlex.join(report.command)}"
    return [
        "",
        "On a simulated cuda the whole program runs, and everything that it does for CUDA alone is listed:",
        f"`{command}`",
    ]


def _count(places: Sequence[Place]) -> str:
    """Return the number of places as text, such as "2 places in 1 file"."""
    number, files = len(places), len({place.file for place in places})
    return f"{number} place{'s' * (number != 1)} in {files} file{'s' * (files != 1)}"


def _packages(places: Sequence[Place]) -> list[str]:
    """Return the lines of the table of packages; the package with the most calls comes first."""
    by_package: dict[str, list[Place]] = {}
    for place in places:
        by_package.setdefault(place.package or "(this project)", []).append(place)
    rows = [
        (sum(place.times for place in places), package, len(places))
        for package, places in by_package.items()
    ]
    rows.sort(reverse=True)
    cells = [[package, str(number), str(times)] for times, package, number in rows]
    return ["", *_table(("package", "places", "times"), cells)]


def _files(places: Iterable[Place], titles: Sequence[str]) -> Iterator[str]:
    """Yield a heading and a table for each file."""
    for file, places_of_file in itertools.groupby(places, lambda place: place.file):
        rows = [_row(place, titles) for place in places_of_file]
        yield from ("", f"### {_escape(file)}", "", *_table(titles, rows))


def _row(place: Place, titles: Sequence[str]) -> list[str]:
    """Return the cells of a place's row, one for each title."""
    cells = {
        "line": str(place.line),
        "times": str(place.times),
        "what": _code(place.what),
        "instead": place.instead,
        "code": _code(place.text),
        "raised": _escape(place.raised),
    }
    return [cells[title] for title in titles]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


def _code(text: str) -> str:
    """Return code escaped for a table cell, in which `|` would end the cell and a backquote the code."""
    if not text:
        return ""
    runs = [len(list(run)) for mark, run in itertools.groupby(text) if mark == "`"]
    fence = "`" * (max(runs, default=0) + 1)
    blank = " " if runs else ""
    escaped = text.replace("|", "\\|")
    return f"{fence}{blank}{escaped}{blank}{fence}"


def _escape(text: str) -> str:
    """Return the text with every character escaped that has a meaning in Markdown."""
    return "".join(f"\\{mark}" if mark in "\\`*_[]<>|#" else mark for mark in text)


# --- SARIF ----------------------------------------------------------------------------------------------


def _sarif_rule(kind: str) -> dict[str, Any]:
    """Return the SARIF rule for a kind of place."""
    return {
        "id": f"vendor-{kind}",
        "shortDescription": {"text": advice.KINDS[kind]},
        "fullDescription": {"text": f"{advice.KINDS[kind]} {_HELP}"},
        "help": {"text": _HELP},
        "defaultConfiguration": {"level": _sarif_level(kind)},
    }


def _sarif_level(kind: str) -> str:
    return "note" if kind == "ask" else "warning"


def _sarif_notifications(report: Report) -> list[dict[str, Any]]:
    """Return notifications with the outcome of the run and with the parts that could not be recorded."""
    level = "warning" if report.failed else "note"
    notifications = [{"level": level, "message": {"text": report.outcome}}]
    for note in report.notes:
        notifications.append(
            {"level": "note", "message": {"text": f"Not recorded: {note}."}}
        )
    return notifications


def _sarif_result(place: Place, kinds: list[str]) -> dict[str, Any]:
    """Return a place as a SARIF result of its kind's rule."""
    times = f"{place.times} time{'s' * (place.times != 1)}"
    message = f"{place.what} is not portable to every device ({times})."
    if place.raised:
        message += f" It raised {place.raised}."
    region: dict[str, Any] = {"startLine": place.line}
    if place.text:
        region["snippet"] = {"text": place.text}
    location = {"artifactLocation": {"uri": quote(place.file)}, "region": region}
    fingerprint = f"{place.file}:{place.kind}:{place.what}:{place.text}"
    return {
        "ruleId": f"vendor-{place.kind}",
        "ruleIndex": kinds.index(place.kind),
        "level": _sarif_level(place.kind),
        "message": {"text": f"{message} Instead: {place.instead}."},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"vendorCode/v1": fingerprint},
        "occurrenceCount": place.times,
    }
