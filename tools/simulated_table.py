"""Write docs/reference/simulated.md: what each simulated device can do, as it was found by doing it.

Each device in a process of its own (tests/simulated/simulated_checks/capabilities.py), so torch and a C++
compiler are needed: run it with the Python of `.nox/tests`. The session `simulated` holds the page against
the devices, but for `torch.compile`, which takes seconds in each process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from generated import settled, wants_check

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/simulated.md"
COMMAND = ".nox/tests/bin/python tools/simulated_table.py"
NO = "—"
HEAD = """# What is simulated

What each device of [accel-simulated](../howto/simulate.md) can do, found by doing it. A dash is what it
refuses, or what the vendor's module has no name for. Kernels are the CPU's on all of them. `klxpu` is the
simulated `cuda` behind another package. Written by `tools/simulated_table.py`; the session `simulated`
compares.

"""


def answers() -> dict[str, dict[str, str]]:
    """By device, by row what it said."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    from accel_testing.on_simulated import run_on

    from accel_simulated import DEVICES

    return {
        name: run_on(name, "simulated_checks.capabilities:slow", name, timeout=300).answer
        for name, vendor in DEVICES.items()
        if not vendor.plays
    }


def page(found: Mapping[str, Mapping[str, str]]) -> str:
    """The page: a row for each capability, a column for each device."""
    rows = next(iter(found.values()))
    lines = ["| | " + " | ".join(f"`{name}`" for name in found) + " |", "|---|" + ":-:|" * len(found)]
    for row in rows:
        cells = (said[row] for said in found.values())
        lines.append(f"| {row} | " + " | ".join(NO if cell == "no" else cell for cell in cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


def column(text: str, name: str) -> dict[str, str]:
    """What a page says of one device: the other way round than `page`."""
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")] for line in text.splitlines() if line[:1] == "|"
    )
    place = head.index(f"`{name}`")
    return {row[1]: "no" if row[place] == NO else row[place] for row in rows}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    said = f"{PAGE} tells what each simulated device can do"
    return settled({root / PAGE: page(answers())}, [], root, said, check=check, command=COMMAND)


if __name__ == "__main__":
    raise SystemExit(main())
