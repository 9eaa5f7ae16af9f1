"""Write a conformance report as JSON, JUnit XML, Markdown, the TOML file of a certificate, or a badge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from accel_testing.conformance.groups import LEVELS
from accel_testing.conformance.records import ConformanceReport, Outcome, Result

__all__ = ["certify", "junit", "markdown", "to_dict", "to_record"]

_NOT_A_FAULT = (Outcome.SKIPPED, Outcome.NOT_CLAIMED, Outcome.EXPECTED)
#: The keys of `to_dict` that a record contains, in addition to the checks.
_RECORD_KEYS = (
    "backend",
    "distribution",
    "version",
    "kit",
    "torch",
    "simulated",
    "level",
    "reached",
    "score",
)


def to_dict(report: ConformanceReport) -> dict[str, Any]:
    """Return the conformance report as a dictionary that can be serialized as JSON."""
    return {
        "backend": report.backend,
        "distribution": report.distribution,
        "version": report.version,
        "kit": report.kit,
        "torch": report.torch,
        "python": report.python,
        "frameworks": list(report.frameworks),
        "simulated": report.simulated,
        "level": report.level,
        "reached": report.reached,
        "score": report.score,
        "seconds": round(report.seconds, 1),
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "checks": [
            {
                "name": result.check.name,
                "level": result.check.level,
                "why": result.check.why,
                "outcome": result.outcome.value,
                "message": result.message,
                "seconds": round(result.seconds, 3),
            }
            for result in report.results
        ],
    }


def to_record(document: dict[str, Any]) -> dict[str, Any]:
    """Return a record for the table of scores, made from a `to_dict` result without times and machine."""
    checks = document["checks"]
    return {
        **{name: document[name] for name in _RECORD_KEYS},
        "outcomes": {check["name"]: check["outcome"] for check in checks},
        "reasons": {
            check["name"]: check["message"]
            for check in checks
            if check["outcome"] != "passed"
        },
    }


def certify(report: ConformanceReport, folder: Path) -> Path:
    """Write the files of a conformance certificate, and return the folder that contains them.

    The folder is `<folder>/<accel-core version>/<backend>-<version>`. The files are `product.toml`,
    `junit.xml`, `report.json`, `card.json`, `card.md` and `badge.svg`. Raises `OSError` if the folder cannot
    be written.
    """
    certificate = (
        folder / report.kit / f"{report.backend}-{report.version or 'unknown'}"
    )
    certificate.mkdir(parents=True, exist_ok=True)
    document = to_dict(report)
    record = to_record(document)
    texts = {
        "report.json": json.dumps(document, indent=2) + "\n",
        "card.json": json.dumps(record, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(report),
        "junit.xml": junit(report),
        "product.toml": _product(report),
        "badge.svg": _badge(report),
    }
    for name, text in texts.items():
        (certificate / name).write_text(text, encoding="utf-8")
    return certificate


def _product(report: ConformanceReport) -> str:
    """Return the TOML file of a certificate, in which the level is -1 if level 0 was not reached."""
    fields = {
        "backend": report.backend, "distribution": report.distribution, "version": report.version,
        "kit": report.kit, "torch": report.torch, "python": report.python, "frameworks": report.frameworks,
        "simulated": report.simulated, "score": report.score,
    }  # fmt: skip
    # A string, and a list of strings, have the same form in JSON and TOML.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    ]
    lines.append(f"level = {report.reached if report.reached is not None else -1}")
    return "\n".join(lines) + "\n"


def markdown(report: ConformanceReport) -> str:
    """Return the conformance report as Markdown, with the levels and each check that did not pass."""
    source = f"{report.distribution} {report.version}".strip()
    lines = [
        f"### {report.score}",
        "",
        f"`{report.backend}` ({source}), torch {report.torch or 'missing'}",
    ]
    if report.simulated:
        lines += ["", f"**Simulated, no real device: {report.simulated}.**"]
    lines += [
        "",
        "| level | | passed | failed | not claimed |",
        "|---|---|--:|--:|--:|",
    ]
    for level, subject in LEVELS.items():
        results = report.results_of(level)
        if results:
            outcomes = [result.outcome for result in results]
            passed = outcomes.count(Outcome.PASSED)
            not_claimed = outcomes.count(Outcome.NOT_CLAIMED)
            bad = sum(not outcome.is_good for outcome in outcomes)
            lines.append(
                f"| {level} | {subject} | {passed} of {len(results)} | {bad} | {not_claimed} |"
            )
    for result in report.results:
        if not result.outcome.is_good:
            message = " ".join(_printable(result.message).split())
            # A backtick in the message would end the code.
            code = message.replace("`", "'")
            lines += ["", f"- `{result.check.name}`, {result.outcome.value}: `{code}`"]
    return "\n".join(lines) + "\n"


def junit(report: ConformanceReport) -> str:
    """Return the conformance report as JUnit XML, with a test case for each check."""
    bad = [result for result in report.results if not result.outcome.is_good]
    suite = ET.Element("testsuite", {
        "name": f"accel verify {report.backend}",
        "tests": str(len(report.results)),
        "failures": str(len(bad)),
        "skipped": str(sum(result.outcome in _NOT_A_FAULT for result in report.results)),
        "time": f"{report.seconds:.3f}",
    })  # fmt: skip
    for result in report.results:
        _add_case(suite, result)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, result: Result) -> None:
    """Add the test case of one check to the suite."""
    group, _, name = result.check.name.rpartition(".")
    case = ET.SubElement(
        suite,
        "testcase",
        {"classname": group, "name": name, "time": f"{result.seconds:.3f}"},
    )
    attributes = {"message": f"{result.outcome.value}: {_printable(result.message)}"}
    if result.outcome in _NOT_A_FAULT:
        ET.SubElement(case, "skipped", attributes)
    elif not result.outcome.is_good:
        ET.SubElement(case, "failure", attributes)


def _printable(text: str) -> str:
    """Return the text with `?` in place of characters that XML forbids, such as terminal escape codes."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "?" for char in text
    )


def _badge(report: ConformanceReport) -> str:
    """Return an SVG badge with the level on the left and the number of checks on the right."""
    left, _, right = report.score.partition(" · ")
    if report.reached == report.level:
        colour = "#2e7d32"  # green
    elif report.reached is not None:
        colour = "#b26a00"  # orange
    else:
        colour = "#b71c1c"  # red
    if report.simulated:
        right += " simulated"
    left_width = 7 * len(left) + 12
    right_width = 7 * len(right) + 12
    font = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left_width + right_width}" height="20" role="img" '
        f'aria-label="{report.score}">\n<title>{report.score}</title>\n'
        f'<rect width="{left_width}" height="20" fill="#444"/>\n'
        f'<rect x="{left_width}" width="{right_width}" height="20" fill="{colour}"/>\n'
        f'<text x="{left_width / 2:g}" y="14" {font}>{left}</text>\n'
        f'<text x="{left_width + right_width / 2:g}" y="14" {font}>{right}</text>\n</svg>\n'
    )
