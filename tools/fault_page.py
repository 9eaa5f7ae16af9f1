"""Write docs/explanation/fault-matrix.md from what was recorded; `--check` only compares.

`./dev faults` records: each fault in each place of a plugin, in everything that a user runs. `./dev docs`
checks, `./dev docs --write` writes. Nothing of accel-core is imported.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path("docs/explanation/fault-matrix.json")
PAGE = Path("docs/explanation/fault-matrix.md")

#: The places in the order in which a choice comes to them.
PLACES = (
    "plugin import", "accel_backends", "accel_probe", "vendor import", "accel_create", "construction",
    "device_count", "accel_explain", "accel_op_builders", "first kernel", "accel_checks",
)  # fmt: skip
ENDS = ("dies", "hangs", "interrupted")
FIRST, NEXT = "get_accelerator()", "the next run"

TITLE = """\
# The fault matrix

<!-- Written by tools/fault_page.py from fault-matrix.json; ./dev docs --write -->
"""
HEAD = (
    "What a plugin may do wrong, in each place where its code runs, met by everything that a user runs. Each "
    "cell is a real distribution with that one fault, ranked above a healthy one, in a process of its own. "
    "It is held against rules that were written before: the right backend is chosen, the verdict says what "
    "happened and names the distribution, the user's process keeps its state, and nothing is left behind. "
    "`./dev faults` runs it all; the ordinary tests run each fault, place and command once. "
    "[Probing and faults](faults.md) says how it is done."
)
ENDED = (
    "No code in a process guards against what ends, crashes or hangs that process. The first "
    "`get_accelerator()` that meets it goes down with it; the next one knows, asks in a child process first, "
    "and says so. What is met after the choice, when the program asks for operators or starts a kernel, is "
    "the program's own, whichever run it is. `KeyboardInterrupt` is the user's, and always passes."
)
SIGNS = (
    "✓ as promised in everything that ran. ¹ the first choice in the user's own process ends with it, and "
    "later ones go on without that plugin. ² whoever meets it in a process of one's own ends with it, each "
    "time. ³ something stays changed that nobody can put back, below. ✗ not as promised, below."
)
STAYS = (
    "The working directory, the umask, the environment, the locale, signal handlers, `sys.modules['torch']`, "
    "`torch.cuda` and `os.environ.get` are put back as they were; the environment and `torch.cuda` not after "
    "the vendor's package of the backend that is chosen, which may need them. The rest nobody can put back. "
    "It stays where a plugin is imported into the program: always without `ACCEL_PROBE=isolated`, and with "
    "it for the plugin that is chosen."
)


def filled(text: str) -> str:
    """Give a paragraph in lines of the documents' length."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def cells(record: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Give every cell with its fault, place and mode."""
    for fault, places in record["cells"].items():
        for place in sorted(places, key=PLACES.index):
            for mode, cell in places[place].items():
                yield fault, place, mode, cell


def counted(record: dict[str, Any]) -> list[str]:
    """Write a line for each mode: how many cells, and how they ended."""
    total: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for _, _, mode, cell in cells(record):
        total[mode] += 1
        ended[mode] += cell["ends"] in ENDS
        wrong[mode] += "wrong" in cell
    lines = [f"| `{mode}` | {total[mode]} | {total[mode] - wrong[mode]} | {ended[mode]} |" for mode in total]
    every = f"| all | {total.total()} | {total.total() - wrong.total()} | {ended.total()} |"
    return [
        "## How many",
        "",
        "| what runs | cells | as promised | of these, the user's process ended by the fault |",
        "|---|---:|---:|---:|",
        *(line.replace(f"`{NEXT}`", NEXT) for line in lines),
        every,
        "",
        filled(ENDED),
    ]


def mark(modes: dict[str, Any]) -> str:
    """Give one sign for a fault in a place, over all that ran there."""
    faulty = sum("wrong" in cell for cell in modes.values())
    if faulty:
        return f"✗ {faulty} of {len(modes)}"
    notes = []
    if modes.get(NEXT, {}).get("ends") in ENDS:
        notes.append("²")
    elif modes.get(FIRST, {}).get("ends") in ENDS:
        notes.append("¹")
    if any("left" in cell for cell in modes.values()):
        notes.append("³")
    return f"✓{' '.join(notes)}"


def table(record: dict[str, Any]) -> list[str]:
    """Write the table of faults and places."""
    rows = [
        f"| {fault} | {' | '.join(mark(places[p]) if p in places else '' for p in PLACES)} |"
        for fault, places in record["cells"].items()
    ]
    return [
        "## Fault by place",
        "",
        f"| | {' | '.join(PLACES)} |",
        f"|---|{':---:|' * len(PLACES)}",
        *rows,
        "",
        filled(SIGNS),
    ]


def stays(record: dict[str, Any]) -> list[str]:
    """Write what stays changed in the user's process, and after which faults."""
    left: dict[tuple[str, str], dict[str, None]] = {}
    for fault, _, mode, cell in cells(record):
        for what in cell.get("left", ()):
            left.setdefault((fault, what), {})[mode] = None
    rows = [
        f"| {fault} | {what} | {', '.join(m if m == NEXT else f'`{m}`' for m in modes)} |"
        for (fault, what), modes in left.items()
    ]
    return [
        "## What stays changed",
        "",
        filled(STAYS),
        "",
        "| fault | what stays | seen in |",
        "|---|---|---|",
        *rows,
    ]


def broken(record: dict[str, Any]) -> list[str]:
    """Write the cells that are not as promised."""
    rows = [
        f"| {fault} | {place} | {mode} | {'; '.join(cell['wrong']).replace('|', chr(92) + '|')} |"
        for fault, place, mode, cell in cells(record)
        if "wrong" in cell
    ]
    if not rows:
        return []
    return ["", "## Not as promised", "", "| fault | place | what ran | seen |", "|---|---|---|---|", *rows]


def page(record: dict[str, Any]) -> str:
    """Write the whole page."""
    where = f"Recorded with Python {record['python']} on {record['system']}."
    parts = [
        TITLE,
        filled(HEAD),
        "",
        where,
        "",
        *counted(record),
        "",
        *table(record),
        "",
        *stays(record),
        *broken(record),
    ]
    return "\n".join(parts) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Compare or write the page; the exit status."""
    check = wants_check(__doc__, arguments)
    record: dict[str, Any] = json.loads((root / RECORD).read_text(encoding="utf-8"))
    unknown = {place for _, place, _, _ in cells(record)} - set(PLACES)
    faults = [f"{RECORD.name}: {place} has no column in fault_page.py" for place in sorted(unknown)]
    total = sum(1 for _ in cells(record))
    said = f"{PAGE.name}: {total} cells"
    return settled({root / PAGE: page(record)}, faults, root, said, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
