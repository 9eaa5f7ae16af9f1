"""Write docs/explanation/simulated-operators.md from what was recorded; `--check` only compares.

`./dev opinfo` records: torch's databases on the simulated device, against the CPU. `./dev docs` checks,
`./dev docs --write` writes. Nothing of accel-core is imported.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path("docs/explanation/simulated-operators.json")
PAGE = Path("docs/explanation/simulated-operators.md")

DTYPES = ("float32", "bfloat16", "float16", "complex64", "int64", "bool")
DATABASES = {
    "operators": "`op_db`: operators",
    "modules": "`module_db`: modules of torch.nn",
    "optimizers": "`optim_db`: optimizers of torch.optim, five steps each",
}
TITLE = """\
# Operators on the simulated device

<!-- Written by tools/opinfo_page.py from simulated-operators.json; ./dev opinfo, ./dev docs --write -->
"""
HEAD = (
    "The databases by which PyTorch tests itself (`torch.testing._internal`), run on the simulated `acme`"
    " with every sample they make. Each call is made on the CPU and on the device with the same inputs, "
    "in the same places of memory, and with the same seed. What the CPU refuses is left out. The device "
    "must give the same bits, NaN for NaN, with the same shape, strides, dtype, layout and conjugation; "
    "an error where the CPU has one of that class. Where a kernel rounds by what was in memory before "
    "(LAPACK's `gelsy`, whose pivots nobody sets), both are run again in memory that is filled. "
    "`linear_cross_entropy` chooses by the device type's name what it accumulates in: there the CPU's "
    "choice is given to both. Kernels that draw random numbers draw the host's "
    "(`ACCEL_SIMULATE_RANDOM=host`). Of what is made without being written (`empty` and its kin) the "
    "numbers are not compared."
)
CELLS = (
    "A cell is one entry of a database with one dtype and one variant; it counts when every call in it is"
    " as on the CPU. `./dev opinfo` runs everything again, in processes that are replaced when they die; "
    "the session `simulated` runs what was wrong once."
)


def filled(text: str) -> str:
    """Give a paragraph in lines of the documents' length."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def cells(record: dict[str, Any], database: str) -> Iterator[tuple[str, str, str, list[int]]]:
    """Give name, dtype, variant and `[calls, same, wrong]` of each cell of a database."""
    for name, dtypes in record["cells"].get(database, {}).items():
        for dtype, variants in dtypes.items():
            for variant, counts in variants.items():
                yield name, dtype, variant, counts


def share(good: int, of: int) -> str:
    """Write a part in percent; never 100 for what is less."""
    return "" if not of else "100 %" if good == of else f"{min(99.99, 100 * good / of):.2f} %"


def table(record: dict[str, Any], database: str) -> list[str]:
    """Write the table of variants and dtypes of a database."""
    found = list(cells(record, database))
    variants = list(dict.fromkeys(variant for _, _, variant, _ in found))
    dtypes = [dtype for dtype in DTYPES if any(dtype == each for _, each, _, _ in found)]
    rows = []
    for variant in variants:
        row = []
        for dtype in dtypes:
            of = [counts for _, d, v, counts in found if (d, v) == (dtype, variant)]
            good = sum(calls == same for calls, same, _ in of)
            row.append(f"{good} of {len(of)}, {share(good, len(of))}" if of else "")
        rows.append(f"| {variant} | {' | '.join(row)} |")
    return [
        f"## {DATABASES[database]}",
        "",
        f"| cells | {' | '.join(dtypes)} |",
        f"|---|{'---:|' * len(dtypes)}",
        *rows,
    ]


def total(record: dict[str, Any]) -> list[str]:
    """Write a line for each database: cells, calls and wrong values."""
    rows = []
    for database in DATABASES:
        found = [counts for *_, counts in cells(record, database)]
        good = sum(calls == same for calls, same, _ in found)
        calls, same, wrong = (sum(column) for column in zip(*found, strict=True))
        rows.append(
            f"| {DATABASES[database].partition(':')[0]} | {len(record['cells'][database])} | {good} of "
            f"{len(found)} | {share(good, len(found))} | {same} of {calls} | {share(same, calls)} | {wrong} |"
        )
    return [
        "| database | entries | cells as on the CPU | | calls as on the CPU | | wrong values |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
    ]


def failures(record: dict[str, Any]) -> list[str]:
    """Write every cell that fails, with the first of its calls that does."""
    first = {}
    for database, name, dtype, variant, what, why in record["failures"]:
        first.setdefault((database, name, dtype, variant), (what, why))
    rows = []
    for database in DATABASES:
        for name, dtype, variant, (calls, same, _) in cells(record, database):
            if calls != same:
                what, why = first[database, name, dtype, variant]
                said = f"{what}: {why}".replace("|", "\\|").removeprefix(": ")
                place = f"| `{name}` | {dtype} | {variant} | {calls - same} of {calls}"
                rows.append(f"{place} | {said} |")
    if not rows:
        return ["## What fails", "", "Nothing."]
    head = ["| entry | dtype | variant | calls | the first of them |", "|---|---|---|---:|---|"]
    return ["## What fails", "", *head, *rows]


def unmade(record: dict[str, Any]) -> list[str]:
    """Write what did not run, as the database itself cannot make its samples here."""
    rows = [
        f"- `{name}`, {dtype}: {why}" for _, name, dtype, variant, _, why in record["failures"] if not variant
    ]
    return ["", "## What torch cannot make samples of here", "", *rows] if rows else []


def page(record: dict[str, Any]) -> str:
    """Write the whole page."""
    parts = [TITLE, filled(HEAD), "", filled(CELLS), "", f"Recorded with torch {record['torch']}.", ""]
    parts += total(record)
    for database in DATABASES:
        parts += ["", *table(record, database)]
    return "\n".join([*parts, "", *failures(record), *unmade(record)]) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Compare or write the page; the exit status."""
    check = wants_check(__doc__, arguments)
    record: dict[str, Any] = json.loads((root / RECORD).read_text(encoding="utf-8"))
    number = sum(1 for database in DATABASES for _ in cells(record, database))
    return settled({root / PAGE: page(record)}, [], root, f"{PAGE.name}: {number} cells", check=check)


if __name__ == "__main__":
    raise SystemExit(main())
