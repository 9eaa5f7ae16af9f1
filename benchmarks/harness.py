"""Paired timing: the two sides in turns, the median of the ratios, one table."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

#: Processes that ran or waited in the minute before the benchmark, which is then not among them.
_LOAD_BEFORE = os.getloadavg()[0]


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured on both sides, in seconds, and what it should come to."""

    name: str
    peer: str
    ours_s: float
    peer_s: float
    #: What is compared with `bound`: a ratio, or for the import the difference in milliseconds.
    figure: float
    bound: float
    unit: str = "x"
    #: The least and the worst figure of the single pairs.
    spread: tuple[float, float] = (float("nan"), float("nan"))

    @property
    def met(self) -> bool:
        """Whether the figure is within its bound."""
        return self.figure <= self.bound


def ratio_row(
    name: str, peer: str, pairs: Sequence[tuple[float, float]], bound: float
) -> Row:
    """A row from measured pairs (ours, peer): the median of the pairs' ratios against `bound`."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = [a / b for a, b in pairs]
    spread = (min(ratios), max(ratios))
    return Row(
        name, peer, ours, theirs, statistics.median(ratios), bound, spread=spread
    )


def in_turns(
    ours: Callable[[], float], peer: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Measure both sides `rounds` times, alternating which goes first, so that drift hits both."""
    pairs = []
    for index in range(rounds):
        if index % 2:
            b, a = peer(), ours()
        else:
            a, b = ours(), peer()
        pairs.append((a, b))
    return pairs


def loop_time(function: Callable[[], object], number: int) -> float:
    """Seconds a call, over `number` calls in a plain loop, the loop's own cost included on both sides."""
    repeat = range(number)
    start = perf_counter_ns()
    for _ in repeat:
        function()
    return (perf_counter_ns() - start) / number / 1e9


#: For a run that is to leave byte code behind.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


def child_seconds(code: str, environ: Mapping[str, str] | None = None) -> float:
    """Run `code` in a fresh interpreter; it prints a JSON number of seconds as its last line."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environ or {})},
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def show(slug: str, title: str, rows: Sequence[Row]) -> int:
    """Print the table and write the results; return 0 if every figure meets its target, else 1."""
    from benchmarks import report

    after = os.getloadavg()[0]  # with the benchmark's own threads
    load = f"load average {_LOAD_BEFORE:.2f} before, {after:.2f} after"
    table = Table(title=title, caption=f"{os.cpu_count()} cores, {load}")
    for column in ("what", "baseline"):
        table.add_column(column)
    for column in ("accel", "baseline", "result", "range", "target"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(
            row.name, row.peer, formatted(row.ours_s), formatted(row.peer_s), f"{row.figure:.2f} {row.unit}",
            spread(row), *promise(row),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(
        "written:",
        report.write(
            slug, title, rows, (_LOAD_BEFORE, after), report.out_of(sys.argv[1:])
        ),
    )
    return 0 if all(row.met for row in rows) else 1


def spread(row: Row) -> str:
    """From the least figure to the worst; empty where single figures were not kept."""
    least, worst = row.spread
    return "" if math.isnan(least) else f"{least:.2f} to {worst:.2f}"


def promise(row: Row) -> tuple[str, str]:
    """The bound and whether it is met; nothing where a row is for information."""
    if math.isinf(row.bound):
        return "", ""
    return f"{row.bound:g} {row.unit}", "met" if row.met else "missed"


def formatted(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-9:.1f} ns"
