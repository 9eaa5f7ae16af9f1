"""Write a card as documents: JSON, JUnit's XML, Markdown, the certificate's TOML, and a badge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from accel_testing.conformance.groups import LEVELS
from accel_testing.conformance.records import Card, Outcome, Result

__all__ = ["certify", "junit", "markdown", "to_dict", "to_record"]

_NO_FAULT = (Outcome.SKIPPED, Outcome.NOT_CLAIMED, Outcome.EXPECTED)
#: What a record keeps of a card beside its checks.
_KEPT = (
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


def to_dict(card: Card) -> dict[str, Any]:
    """Return the card as plain values, for JSON."""
    return {
        "backend": card.backend,
        "distribution": card.distribution,
        "version": card.version,
        "kit": card.kit,
        "torch": card.torch,
        "python": card.python,
        "frameworks": list(card.frameworks),
        "simulated": card.simulated,
        "level": card.level,
        "reached": card.reached,
        "score": card.score,
        "seconds": round(card.seconds, 1),
        "counts": {outcome.value: card.count(outcome) for outcome in Outcome},
        "checks": [
            {
                "name": result.check.name,
                "level": result.check.level,
                "why": result.check.why,
                "outcome": result.outcome.value,
                "message": result.message,
                "seconds": round(result.seconds, 3),
            }
            for result in card.results
        ],
    }


def to_record(told: dict[str, Any]) -> dict[str, Any]:
    """Return the record for the table of scores: what `to_dict` gave, without times and its machine."""
    checks = told["checks"]
    return {
        **{name: told[name] for name in _KEPT},
        "outcomes": {row["name"]: row["outcome"] for row in checks},
        "reasons": {
            row["name"]: row["message"] for row in checks if row["outcome"] != "passed"
        },
    }


def certify(card: Card, folder: Path) -> Path:
    """Write the documents of a certificate, and return their folder.

    They are `product.toml`, `junit.xml`, `report.json`, `card.json`, `card.md` and `badge.svg`.

    It is `<folder>/<kit version>/<backend>-<version>`. Raises `OSError` if it cannot be written.
    """
    place = folder / card.kit / f"{card.backend}-{card.version or 'unknown'}"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "report.json": json.dumps(to_dict(card), indent=2) + "\n",
        "card.json": json.dumps(to_record(to_dict(card)), indent=1, ensure_ascii=False)
        + "\n",
        "card.md": markdown(card),
        "junit.xml": junit(card),
        "product.toml": _product(card),
        "badge.svg": _badge(card),
    }.items():
        (place / name).write_text(text, encoding="utf-8")
    return place


def _product(card: Card) -> str:
    rows = {
        "backend": card.backend, "distribution": card.distribution, "version": card.version,
        "kit": card.kit, "torch": card.torch, "python": card.python, "frameworks": card.frameworks,
        "simulated": card.simulated, "score": card.score,
    }  # fmt: skip
    # JSON's strings are TOML's basic strings, and its lists of them TOML's.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in rows.items()
    ]
    lines.append(f"level = {card.reached if card.reached is not None else -1}")
    return "\n".join(lines) + "\n"


def markdown(card: Card) -> str:
    """Return the card as Markdown: the levels, and each check that is not kept."""
    source = f"{card.distribution} {card.version}".strip()
    lines = [
        f"### {card.score}",
        "",
        f"`{card.backend}` ({source}), torch {card.torch or 'missing'}",
    ]
    if card.simulated:
        lines += ["", f"**Simulated, no real device: {card.simulated}.**"]
    lines += [
        "",
        "| level | | passed | not kept | not claimed |",
        "|---|---|--:|--:|--:|",
    ]
    for level, what in LEVELS.items():
        if of := card.of(level):
            passed, none = (
                sum(result.outcome is outcome for result in of)
                for outcome in (Outcome.PASSED, Outcome.NOT_CLAIMED)
            )
            bad = sum(not result.outcome.is_good for result in of)
            lines.append(
                f"| {level} | {what} | {passed} of {len(of)} | {bad} | {none} |"
            )
    for result in card.results:
        if not result.outcome.is_good:
            words = " ".join(_for_xml(result.message).split())
            # A run of backticks in the words would end the code.
            told = words.replace("`", "'")
            lines += ["", f"- `{result.check.name}`, {result.outcome.value}: `{told}`"]
    return "\n".join(lines) + "\n"


def junit(card: Card) -> str:
    """Return the card as JUnit's XML: a test case for each check."""
    bad = [result for result in card.results if not result.outcome.is_good]
    suite = ET.Element("testsuite", {
        "name": f"accel verify {card.backend}",
        "tests": str(len(card.results)),
        "failures": str(len(bad)),
        "skipped": str(sum(result.outcome in _NO_FAULT for result in card.results)),
        "time": f"{card.seconds:.3f}",
    })  # fmt: skip
    for result in card.results:
        _case(suite, result)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, result: Result) -> None:
    group, _, name = result.check.name.rpartition(".")
    case = ET.SubElement(
        suite,
        "testcase",
        {"classname": group, "name": name, "time": f"{result.seconds:.3f}"},
    )
    words = {"message": f"{result.outcome.value}: {_for_xml(result.message)}"}
    if result.outcome in _NO_FAULT:
        ET.SubElement(case, "skipped", words)
    elif not result.outcome.is_good:
        ET.SubElement(case, "failure", words)


def _for_xml(text: str) -> str:
    """Without what XML cannot hold: a vendor's message may have escape codes in it."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "?" for char in text
    )


def _badge(card: Card) -> str:
    left, _, right = card.score.partition(" · ")
    colour = (
        "#2e7d32"
        if card.reached == card.level
        else "#b26a00"
        if card.reached is not None
        else "#b71c1c"
    )
    if card.simulated:
        right += " simulated"
    first, second = 7 * len(left) + 12, 7 * len(right) + 12
    font = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" '
        f'aria-label="{card.score}">\n<title>{card.score}</title>\n'
        f'<rect width="{first}" height="20" fill="#444"/>\n'
        f'<rect x="{first}" width="{second}" height="20" fill="{colour}"/>\n'
        f'<text x="{first / 2:g}" y="14" {font}>{left}</text>\n'
        f'<text x="{first + second / 2:g}" y="14" {font}>{right}</text>\n</svg>\n'
    )
