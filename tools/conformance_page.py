"""Write docs/reference/conformance.md: every check of the kit, why it is there, and what it was tried on.

Names and reasons are those of the checks' own sources, `src/accel_core/conformance/**/test_*.py`; the broken
accelerators those of tests/conformance/mutants.json, which `./dev mutants` records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import settled, wants_check

from accel_core.conformance.catalogue import Check, checks
from accel_core.conformance.groups import LEVELS

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/conformance.md"
RECORD = ROOT / "tests" / "conformance" / "mutants.json"
TRIED = """
## Tried on broken accelerators

{count} accelerators on the simulated `acme`, each with one member broken, and all checks run on each
(`./dev mutants`). Each is caught by the check that is meant for it; others fail where they rely on what is
broken.

| what is broken | the check that is meant for it | others that fail |
|---|---|---|
"""
HEAD = """# The checks of `accel verify`

What the interface promises, as checks that any backend can be run against:
see [Verify a backend](../howto/verify.md). A name is what `--check` and the vendor's file take. Written by
`tools/conformance_page.py` from the checks' own sources; `./dev docs` compares.
"""


def page(found: tuple[Check, ...]) -> str:
    """The page: a section for each level, and in it a table for each group."""
    parts = [HEAD]
    for level, what in LEVELS.items():
        parts.append(f"\n## Level {level}: {what}\n")
        for group in dict.fromkeys(check.group for check in found if check.level == level):
            parts.append(f"\n### {group.name}\n\n| check | why |\n|---|---|\n")
            for check in (each for each in found if each.group == group):
                why = check.why.replace("|", "\\|")
                parts.append(f"| `{check.name.removeprefix(group.name + '.')}` | {why} |\n")
    return "".join([*parts, *tried()])


def tried() -> Iterator[str]:
    """The table of the broken accelerators, as recorded."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    yield TRIED.format(count=len(record))
    for name, row in record.items():
        others = ", ".join(f"`{check}`" for check in row["failing"] if check != row["meant"])
        yield f"| {name} | `{row['meant']}` | {others} |\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or compare the page."""
    check = wants_check(__doc__, arguments)
    said = f"{len(checks())} checks are told"
    return settled({ROOT / PAGE: page(checks())}, [], ROOT, said, check=check)


if __name__ == "__main__":
    sys.exit(main())
