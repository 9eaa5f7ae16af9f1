"""A report as Markdown, JSON and SARIF."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from accel_simulated import __version__
from accel_simulated.detector import advice
from accel_simulated.detector.gather import Place, Report

__all__ = ["FORMATS", "as_json", "as_markdown", "as_sarif", "format_of"]

_HELP = (
    "It was run while another vendor's device was simulated, where it does nothing, fails or takes another "
    "way. The message of each result says what accel_core or torch.accelerator has for every device."
)


def as_markdown(report: Report) -> str:
    """Return Markdown for people: a table of packages, one table for each file, and the questions."""
    found, asks = report.assumptions, report.asks
    lines = [
        "# Written for one vendor",
        "",
        *_incomplete(report),
        f"`{shlex.join(report.command)}` on {report.simulated} (simulated), exit status {report.status}:",
        f"{_count(found)}, and {_count(asks)} that only ask.",
        "",
        "`acc` is `accel_core.get_accelerator()`.",
    ]
    lines += [f"\nNot seen: {note}." for note in report.notes]
    if not found and report.failure:
        lines += ["", "No place was recorded before the command failed."]
    elif not found:
        lines += ["", "Nothing outside torch was written for another vendor's device."]
    else:
        lines += ["", *_table(("package", "places", "times"), _packages(found))]
        lines += _files(
            found, ("line", "times", "what", "instead", "code", "raised"), _assumption
        )
    if asks:
        lines += [
            "",
            "## Questions",
            "",
            "What stands behind one may not run on another device.",
        ]
        lines += _files(
            asks,
            ("line", "times", "what", "instead", "code"),
            lambda p: _assumption(p)[:-1],
        )
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    """Return JSON for programs; `schema` increases when a key changes its meaning."""
    listed = {"assumptions": report.assumptions, "asks": report.asks}
    keys = (
        "file",
        "line",
        "package",
        "kind",
        "what",
        "type",
        "times",
        "raised",
        "text",
        "instead",
    )
    told = {
        "schema": 1,
        "command": report.command,
        "simulated": report.simulated,
        "status": report.status,
        "complete": not report.failure,
        "processes": report.processes,
        "notes": report.notes,
        **{
            name: [{key: getattr(p, key) for key in keys} for p in places]
            for name, places in listed.items()
        },
    }
    return json.dumps(told, indent=2) + "\n"


def as_sarif(report: Report) -> str:
    """Return SARIF 2.1.0, for code scanning; it lists only the project's own files, as scans show no others.

    An assumption is a warning, a question is a note.
    """
    own = [place for place in report.places if not place.package]
    notifications = [
        {"level": "note", "message": {"text": f"Not seen: {note}."}}
        for note in report.notes
    ]
    if report.failure:
        notifications.insert(
            0,
            {"level": "warning", "message": {"text": f"{_sentence(report.failure)}."}},
        )
    kinds = [kind for kind in advice.KINDS if any(place.kind == kind for place in own)]
    driver = {
        "name": "accel simulate",
        "version": __version__,
        "rules": [
            {
                "id": f"vendor-{kind}",
                "shortDescription": {"text": advice.KINDS[kind]},
                "fullDescription": {"text": f"{advice.KINDS[kind]} {_HELP}"},
                "help": {"text": _HELP},
                "defaultConfiguration": {"level": _level(kind)},
            }
            for kind in kinds
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{
            "commandLine": shlex.join(report.command),
            "exitCode": report.status,
            "executionSuccessful": not report.failure,
            "toolExecutionNotifications": notifications,
        }],
        "results": [_result(place, kinds) for place in own],
    }  # fmt: skip
    told = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(told, indent=2) + "\n"


#: By the ending of the file's name.
FORMATS: dict[str, Callable[[Report], str]] = {
    ".md": as_markdown,
    ".json": as_json,
    ".sarif": as_sarif,
}


def format_of(file: str) -> Callable[[Report], str] | None:
    """Return the function for the format that a file's suffix names; `None` for an unknown suffix."""
    return FORMATS.get(PurePath(file).suffix.lower())


def _sentence(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


# --- Markdown -------------------------------------------------------------------------------------------


def _incomplete(report: Report) -> list[str]:
    if not report.failure:
        return []
    return [f"{_sentence(report.failure)}: code that did not run is not in it.", ""]


def _count(places: Sequence[Place]) -> str:
    number, files = len(places), len({place.file for place in places})
    return f"{number} place{'s' * (number != 1)} in {files} file{'s' * (files != 1)}"


def _packages(places: Sequence[Place]) -> list[list[str]]:
    by_name: dict[str, list[Place]] = {}
    for place in places:
        by_name.setdefault(place.package or "(this project)", []).append(place)
    rows = [
        (sum(p.times for p in part), name, len(part)) for name, part in by_name.items()
    ]
    return [
        [name, str(number), str(times)]
        for times, name, number in sorted(rows, reverse=True)
    ]


def _files(
    places: Iterable[Place], titles: Sequence[str], cells: Callable[[Place], list[str]]
) -> Iterable[str]:
    for file, part in itertools.groupby(places, lambda place: place.file):
        yield from (
            "",
            f"### {_escaped(file)}",
            "",
            *_table(titles, [cells(place) for place in part]),
        )


def _assumption(place: Place) -> list[str]:
    return [
        str(place.line), str(place.times), _code(place.what), place.instead, _code(place.text),
        _escaped(place.raised),
    ]  # fmt: skip


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


def _code(text: str) -> str:
    """Code in a table's cell, where a bar ends the cell and a backquote the code."""
    if not text:
        return ""
    longest = max(
        (len(list(run)) for mark, run in itertools.groupby(text) if mark == "`"),
        default=0,
    )
    fence, blank = "`" * (longest + 1), " " * ("`" in text)
    return f"{fence}{blank}{text.replace('|', chr(92) + '|')}{blank}{fence}"


def _escaped(text: str) -> str:
    return "".join(f"\\{mark}" if mark in "\\`*_[]<>|#" else mark for mark in text)


# --- SARIF ----------------------------------------------------------------------------------------------


def _level(kind: str) -> str:
    return "note" if kind == "ask" else "warning"


def _result(place: Place, kinds: list[str]) -> dict[str, Any]:
    said = f"{place.what} is for {place.type} alone ({place.times} time{'s' * (place.times != 1)})"
    raised = f" It raised {place.raised}." if place.raised else ""
    region = {
        "startLine": place.line,
        **({"snippet": {"text": place.text}} if place.text else {}),
    }
    where = {"artifactLocation": {"uri": quote(place.file)}, "region": region}
    return {
        "ruleId": f"vendor-{place.kind}",
        "ruleIndex": kinds.index(place.kind),
        "level": _level(place.kind),
        "message": {"text": f"{said}.{raised} Instead: {place.instead}."},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {
            "vendorCode/v1": f"{place.file}:{place.kind}:{place.what}:{place.text}"
        },
        "occurrenceCount": place.times,
    }
