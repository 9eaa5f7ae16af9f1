"""Write the results of the benchmarks into docs/benchmarks/: a JSON document, and charts of three of them.

docs/evidence/performance.md shows the charts and reads the documents. `python -m benchmarks.report` draws the
charts again from the documents.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Row

FOLDER = Path(__file__).parents[1] / "docs/benchmarks"
#: Whose versions decide the figures.
PACKAGES = ("accel-core", "torch", "deepspeed", "numpy")
#: The results that have a chart: its title, and what the baseline 1 stands for.
CHARTS = {
    "core": ("Overhead of accel", "the same without accel"),
    "first-step": ("Time to the first training step", "the same without accel"),
    "deepspeed": ("accel and DeepSpeed", "see the label of each bar"),
}
#: Colours that can be read on a white and on a black page: no page tells a picture which one it is.
TEXT, BAR, MISSED, MARK = "#7a7f87", "#3a78c2", "#c25a1c", "#8c6bb1"
#: The chart's width, and that of a ratio of 1, in pixels.
WIDTH, ONE = 480, 210


def machine() -> dict[str, Any]:
    """Return the machine, the versions, and the date of a run."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": found,
    }


def _processor() -> str:
    try:
        names = re.findall(
            r"^model name\s*: (.*)$",
            Path("/proc/cpuinfo").read_text("utf-8"),
            re.MULTILINE,
        )
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def write(
    slug: str,
    title: str,
    rows: Sequence[Row],
    load: tuple[float, float],
    folder: Path = FOLDER,
) -> Path:
    """Write `slug`.json, and `slug`.svg if it has a chart, into `folder`; return the path of the former."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        "schema": 1,
        "title": title,
        "machine": machine(),
        "load": load,
        "rows": [asdict(row) for row in rows],
    }
    path = folder / f"{slug}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    if slug in CHARTS:
        draw(slug, rows, folder)
    return path


def read(slug: str, folder: Path = FOLDER) -> list[Row]:
    """Read the rows of `slug`.json."""
    kept = json.loads((folder / f"{slug}.json").read_text(encoding="utf-8"))
    return [Row(**{**row, "spread": tuple(row["spread"])}) for row in kept["rows"]]


def draw(slug: str, rows: Sequence[Row], folder: Path = FOLDER) -> None:
    """Draw a bar for each row that has a ratio and a target."""
    title, baseline = CHARTS[slug]
    shown = [row for row in rows if row.unit == "x" and math.isfinite(row.bound)]
    top = 78
    height = top + 42 * len(shown)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 1.25:g}" height="{height * 1.25:g}"'
    font = f'font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        f"<title>{title}</title>",
        f'<text x="0" y="17" font-size="16" font-weight="600">{title}</text>',
        *_legend(baseline),
    ]
    for place, row in enumerate(shown):
        parts += _bar(row, top + 42 * place)
    text = "\n".join([*parts, "</svg>"]) + "\n"
    (folder / f"{slug}.svg").write_text(text, encoding="utf-8")


def _legend(baseline: str) -> list[str]:
    """Draw two lines with what each sign stands for."""
    return [
        f'<rect x="0" y="29" width="14" height="12" fill="{BAR}"/>',
        '<text x="20" y="40">time with accel</text>',
        f'<rect x="140" y="29" width="14" height="12" fill="{MISSED}"/>',
        '<text x="160" y="40">time with accel, target missed</text>',
        f'<path d="M375 28v14" stroke="{MARK}" stroke-width="4"/>',
        '<text x="385" y="40">target</text>',
        f'<path d="M7 48v14" stroke="{TEXT}" stroke-width="2" stroke-dasharray="3 2"/>',
        f'<text x="20" y="60">baseline = 1: {baseline}</text>',
    ]


def _bar(row: Row, top: int) -> list[str]:
    """Draw a row: its name above its bar, the value in the bar, the baseline, and the target."""
    label = row.name
    if row.peer != "the same, without accel":
        label = escape(f"{row.name} vs {row.peer}")
    length, target = row.figure * ONE, row.bound * ONE
    colour = BAR if row.met else MISSED
    return [
        f'<text x="0" y="{top + 10}" font-size="11.5">{label}</text>',
        f'<rect x="0" y="{top + 15}" width="{length:.1f}" height="17" fill="{colour}"/>',
        f'<text x="5" y="{top + 28}" font-weight="600" fill="#ffffff">{row.figure:.2f}</text>',
        f'<path d="M{ONE} {top + 13}v21" stroke="{TEXT}" stroke-width="2" stroke-dasharray="3 2"/>',
        f'<path d="M{target:.1f} {top + 13}v21" stroke="{MARK}" stroke-width="4"/>',
    ]


def out_of(arguments: Sequence[str]) -> Path:
    """The folder of `--out FOLDER`, else docs/benchmarks."""
    rest = list(arguments)
    if not rest:
        return FOLDER
    if len(rest) == 2 and rest[0] == "--out":
        return Path(rest[1])
    sys.exit(f"{' '.join(rest)}: expected nothing, or --out FOLDER")


if __name__ == "__main__":
    for each in CHARTS:
        draw(each, read(each))
