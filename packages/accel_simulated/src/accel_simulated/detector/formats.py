"""Format a report as Markdown, JSON or SARIF."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from accel_simulated import __version__
from accel_simulated.detector import advice
from accel_simulated.detector.merge import Place, Report

__all__ = ["FORMATTERS", "as_json", "as_markdown", "as_sarif", "find_formatter"]

_HELP = (
    "The program ran on a simulated device. Each result is code that has no effect, fails or takes "
    "a different branch on another vendor's device. The result's message names the replacement in "
    "accel_core or torch.accelerator."
)
_IN_SOURCE = (
    "These source files ran and name CUDA, but the run recorded no use of these names. A run cannot record "
    'comparisons of strings (`device.type == "cuda"`), settings (`torch.backends.cudnn`), kernel '
    'registrations, or names that torch reads as part of a longer string (`"rank:0/cuda:0"`). All other '
    "names in this section are in code that did not run."
)
_NOT_LISTED = (
    "The report cannot list code in files that the program did not load, code without a file (`python -c`, "
    "`exec`, compiled extensions), calls in functions compiled by `torch.compile`, or calls of `torch.cuda` "
    "that did not run. It also cannot list device names that come from arguments or configuration files, "
    "that are built from parts, or that are in strings with spaces. Packages for CUDA other than torch "
    "(cupy, pynvml) and device indices, which name no device (`model.to(0)`), are not listed either."
)
_PLACE_KEYS = (
    "file", "line", "package", "kind", "what", "type", "times", "raised", "text", "instead",
)  # fmt: skip


def as_markdown(report: Report) -> str:
    """Return the report as Markdown.

    The page contains the outcome, a table of packages, tables of vendor-specific code, and the device checks.
    """
    lines = [
        "# Vendor-specific code",
        "",
        report.outcome,
        "",
        f"`{shlex.join(report.command)}` on {report.simulated} (simulated), exit status {report.status}:",
        (
            f"To change: {_format_place_count(report.places_to_change)}. "
            f"Device checks: {_format_place_count(report.device_checks)}. "
            f"The source files that ran also name CUDA in {_format_place_count(report.source_places)} that "
            "the run did not record."
        ),
        "",
        "`acc` is `accel_core.get_accelerator()`.",
    ]
    lines += [f"\nNot recorded: {note}." for note in report.notes]
    lines += _suggest_simulated_cuda(report)
    if report.places_to_change:
        lines += _package_table(report.places_to_change)
        titles = ("line", "times", "what", "instead", "code", "raised")
        lines += _file_tables(report.places_to_change, titles)
    else:
        lines += ["", _explain_empty_report(report)]
    if report.device_checks:
        lines += [
            "",
            "## Device checks",
            "",
            "Code after a device check may not run on another vendor's device.",
        ]
        lines += _file_tables(
            report.device_checks, ("line", "times", "what", "instead", "code")
        )
    if report.source_places:
        lines += ["", "## In the source files", "", _IN_SOURCE]
        lines += _file_tables(report.source_places, ("line", "what", "instead", "code"))
    lines += ["", "## Not listed", "", _NOT_LISTED]
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    """Return the report as JSON.

    The value of `schema` increases whenever the meaning of a key changes.
    """
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
        "assumptions": [_place_as_json(place) for place in report.places_to_change],
        "asks": [_place_as_json(place) for place in report.device_checks],
        "in_source": [_place_as_json(place) for place in report.source_places],
    }
    return json.dumps(document, indent=2) + "\n"


def _place_as_json(place: Place) -> dict[str, Any]:
    """Return the place as a JSON object."""
    return {key: getattr(place, key) for key in _PLACE_KEYS}


def as_sarif(report: Report) -> str:
    """Return the report as SARIF 2.1.0 for code scanning services, which show only the project's own files.

    Vendor-specific code has the level "warning", and checks for a device have the level "note".
    """
    # Code scanning services show only files of the user's project, which belong to no installed package.
    places = report.places + report.source_places
    own_places = [place for place in places if not place.package]
    used_kinds = {place.kind for place in own_places}
    kinds = [kind for kind in advice.KINDS if kind in used_kinds]
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
        "results": [_sarif_result(place, kinds) for place in own_places],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2) + "\n"


#: The formatting function for each suffix of a report file.
FORMATTERS: dict[str, Callable[[Report], str]] = {
    ".md": as_markdown,
    ".json": as_json,
    ".sarif": as_sarif,
}


def find_formatter(file: str) -> Callable[[Report], str] | None:
    """Return the function that formats a report for a file with this suffix, or `None` if it is unknown."""
    return FORMATTERS.get(PurePath(file).suffix.lower())


# --- Markdown -------------------------------------------------------------------------------------------


def _explain_empty_report(report: Report) -> str:
    """Return a sentence that explains, based on the outcome of the run, why a report has no places."""
    if report.failed:
        return "No source location was recorded before the program failed."
    if report.used_device:
        return "The run recorded no code for one vendor's device."
    return "No source location was recorded, because no code for a device ran."


def _suggest_simulated_cuda(report: Report) -> list[str]:
    """Return lines that suggest a run on simulated cuda, on which CUDA programs run to completion.

    The list is empty if no place is written for CUDA, if the program already ran on simulated cuda, or if it
    neither failed nor ran on the CPU.
    """
    names_cuda = any(place.type == "cuda" for place in report.places)
    if not names_cuda or report.simulated.startswith("cuda"):
        return []
    ran_on_cpu = report.used_device is False  # None: it is not known
    if not report.failed and not ran_on_cpu:
        return []
    command = f"accel simulate --report cuda.md cuda -- {shlex.join(report.command)}"
    return [
        "",
        "On simulated CUDA devices, the whole program runs, and the report lists all of its code for CUDA:",
        f"`{command}`",
    ]


def _format_place_count(places: Sequence[Place]) -> str:
    """Return the numbers of places and files as text, such as "2 places in 1 file"."""
    files = {place.file for place in places}
    return f"{format_count(len(places), 'place')} in {format_count(len(files), 'file')}"


def format_count(number: int, noun: str) -> str:
    """Return a number followed by a noun in the singular or plural, such as "1 place" or "2 places"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def _package_table(places: Sequence[Place]) -> list[str]:
    """Return the lines of a table of packages, starting with the package with the most calls."""
    number_of_calls: Counter[str] = Counter()
    number_of_places: Counter[str] = Counter()
    for place in places:
        package = place.package or "(this project)"
        number_of_calls[package] += place.times
        number_of_places[package] += 1

    def sort_key(package: str) -> tuple[int, str]:
        return number_of_calls[package], package

    rows = [
        [package, str(number_of_places[package]), str(number_of_calls[package])]
        for package in sorted(number_of_places, key=sort_key, reverse=True)
    ]
    return ["", *_format_table(("package", "places", "times"), rows)]


def _file_tables(places: Iterable[Place], titles: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a heading and a table for each file, with `titles` as the column titles."""
    # The places of a file follow each other in a report, as `groupby` requires.
    for file, places_of_file in itertools.groupby(places, attrgetter("file")):
        rows = [_table_row(place, titles) for place in places_of_file]
        yield ""
        yield f"### {_escape_markdown(file)}"
        yield ""
        yield from _format_table(titles, rows)


def _table_row(place: Place, titles: Sequence[str]) -> list[str]:
    """Return the cells of the table row for a place, one cell for each column title."""
    cells = {
        "line": str(place.line),
        "times": str(place.times),
        "what": _format_code(place.what),
        "instead": place.instead,
        "code": _format_code(place.text),
        "raised": _escape_markdown(place.raised),
    }
    return [cells[title] for title in titles]


def _format_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    separator = ["---"] * len(titles)
    return [f"| {' | '.join(row)} |" for row in (titles, separator, *rows)]


def _format_code(text: str) -> str:
    """Return code in backticks for a Markdown table cell, or an empty string if there is no code."""
    if not text:
        return ""
    escaped = text.replace("|", "\\|")  # a vertical bar would end the cell
    if "`" not in text:
        return f"`{escaped}`"
    # Markdown ends code at a run of as many backquotes as the code began with.
    longest_run = max(len(run) for run in re.findall("`+", text))
    fence = "`" * (longest_run + 1)
    return f"{fence} {escaped} {fence}"


def _escape_markdown(text: str) -> str:
    """Return the text with a backslash before each Markdown special character."""
    return re.sub(r"[\\`*_\[\]<>|#]", r"\\\g<0>", text)


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
    """Return the SARIF level of a kind of place."""
    return "note" if kind == advice.DEVICE_CHECK else "warning"


def _sarif_notifications(report: Report) -> list[dict[str, Any]]:
    """Return SARIF notifications about the outcome of the run and about uses that could not be recorded."""
    level = "warning" if report.failed else "note"
    notifications = [{"level": level, "message": {"text": report.outcome}}]
    for note in report.notes:
        notifications.append(
            {"level": "note", "message": {"text": f"Not recorded: {note}."}}
        )
    return notifications


def _sarif_result(place: Place, kinds: list[str]) -> dict[str, Any]:
    """Return a place as a SARIF result, where `kinds` lists the kinds of the SARIF rules in order."""
    if place.times:
        calls = format_count(place.times, "call")
    else:
        calls = "no recorded calls"
    message = f"{place.what} is not portable to every device ({calls})."
    if place.raised:
        message += f" It raised {place.raised}."
    region: dict[str, Any] = {"startLine": place.line}
    level = "note"
    if place.times:  # the run recorded a use, so the level depends on the kind of code
        level = _sarif_level(place.kind)
    if place.text:
        region["snippet"] = {"text": place.text}
    location = {"artifactLocation": {"uri": quote(place.file)}, "region": region}
    fingerprint = f"{place.file}:{place.kind}:{place.what}:{place.text}"
    return {
        "ruleId": f"vendor-{place.kind}",
        "ruleIndex": kinds.index(place.kind),
        "level": level,
        "message": {"text": f"{message} Instead: {place.instead}."},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"vendorCode/v1": fingerprint},
        "occurrenceCount": place.times,
    }
