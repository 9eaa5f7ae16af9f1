"""Write docs/reference/scores.md, the score card of every backend, from tests/conformance/cards.

`./dev cards` writes the cards; `./dev docs` compares the page with them, `./dev docs --write` writes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generated import settled, wants_check

from accel_core.conformance.catalogue import checks
from accel_core.conformance.groups import LEVELS

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/scores.md"
CARDS = ROOT / "tests" / "conformance" / "cards"
HEAD = """# How the backends score

The card that [`accel verify`](../howto/verify.md) gives each backend of this repository. Where a device is
simulated, the card says nothing about the hardware, and little about the vendor's package: it holds what the
plugin and accel-core do. Written by `tools/score_page.py` from the cards of `./dev cards`; the tests run
them again and compare.

| backend | on | score | {levels} | not claimed | fails, as told |
|---|---|---|{rule}--:|--:|
"""
MORE = """
A score counts the [checks](conformance.md) that passed, of all that there are. What a device says that it has
not is *not claimed*. What fails has its reason below; anything else that fails makes the run fail.
"""


def page(cards: Mapping[str, dict[str, Any]]) -> str:
    """The page: a table of all, and what each does not do."""
    columns = " | ".join(f"L{level}" for level in told_levels(cards))
    parts = [HEAD.format(levels=columns, rule="--:|" * len(told_levels(cards)))]
    parts += [row(name, card, told_levels(cards)) for name, card in cards.items()]
    parts += [MORE, *(part for name, card in cards.items() for part in section(name, card))]
    return "".join(parts)


def told_levels(cards: Mapping[str, dict[str, Any]]) -> list[int]:
    """Up to the highest that any was run at."""
    return [level for level in LEVELS if level <= max(card["level"] for card in cards.values())]


def row(name: str, card: Mapping[str, Any], levels: list[int]) -> str:
    """A card in one line."""
    level_of = {check.name: check.level for check in checks()}
    passed = Counter(level_of[check] for check, how in card["outcomes"].items() if how == "passed")
    total = Counter(level_of[check] for check in card["outcomes"])
    how = Counter(card["outcomes"].values())
    cells = [
        f"[`{card['backend']}`](#{anchor(name)})", device(card), card["score"],
        *(f"{passed[level]}/{total[level]}" if total[level] else "–" for level in levels),
        str(how["not claimed"]), str(how["expected failure"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def device(card: Mapping[str, Any]) -> str:
    """What the checks ran on."""
    if card["simulated"]:
        return f"simulated `{card['simulated'].partition(' ')[0]}`"
    return card.get("device") or "this processor"


def anchor(name: str) -> str:
    """As the site makes it of the section's heading."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def section(name: str, card: Mapping[str, Any]) -> Iterator[str]:
    """What the backend of one card does not do, and why."""
    source = f"`{card['backend']}` of {card['distribution']} {card['version']}"
    yield f"\n## {name}\n\n{source} on {device(card)}, torch {card['torch']}: {card['score']}.\n"
    for outcome, what in (("expected failure", "Fails"), ("not claimed", "Not claimed")):
        by_reason: dict[str, list[str]] = {}
        for check, reason in card["reasons"].items():
            if card["outcomes"][check] == outcome:
                by_reason.setdefault(reason, []).append(f"`{check}`")
        if by_reason:
            yield f"\n{what}:\n\n"
            yield from (f"- {reason}: {', '.join(names)}\n" for reason, names in by_reason.items())


def main(arguments: list[str] | None = None) -> int:
    """Write or compare the page."""
    check = wants_check(__doc__, arguments)
    cards = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(CARDS.glob("*.json"))}
    return settled({ROOT / PAGE: page(cards)}, [], ROOT, f"{len(cards)} cards are told", check=check)


if __name__ == "__main__":
    sys.exit(main())
