"""What a run of the benchmarks leaves in docs/benchmarks/: JSON, and a page with a table and a plot."""

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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, formatted, promise, spread

FOLDER = Path(__file__).parents[1] / "docs/benchmarks"
#: Whose versions decide the figures.
PACKAGES = ("accel-core", "torch", "deepspeed", "numpy")
#: A bar beyond this many times the longest bound is cut, and says so.
CUT = 1.5


def machine() -> dict[str, Any]:
    """The machine and the versions that a run was taken on."""
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
    """Write `slug`.json, .svg and .md into `folder`; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        "schema": 1,
        "title": title,
        "machine": machine(),
        "load": load,
        "rows": [asdict(r) for r in rows],
    }
    (folder / f"{slug}.json").write_text(
        json.dumps(kept, indent=2) + "\n", encoding="utf-8"
    )
    draw(rows, folder / f"{slug}.svg")
    path = folder / f"{slug}.md"
    path.write_text(page(slug, kept, rows), encoding="utf-8")
    return path


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_number(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page(slug: str, kept: dict[str, Any], rows: Sequence[Row]) -> str:
    """The page: the plot, the table, and what it was taken on."""
    taken, (before, after) = kept["machine"], kept["load"]
    versions = ", ".join(
        f"{name} {number}" for name, number in taken["packages"].items()
    )
    lines = [
        f"# {kept['title']}", "",
        f"![{kept['title']}: each row beside its peer]({slug}.svg)", "",
        "| what | peer | ours | peer's | ratio | least to worst | bound | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]  # fmt: skip
    for row in rows:
        figure = f"{row.figure:.2f} {row.unit}"
        bound, met = promise(row)
        lines.append(
            f"| {row.name} | {row.peer} | {formatted(row.ours_s)} | {formatted(row.peer_s)} | {figure} | "
            f"{spread(row)} | {bound} | {'**missed**' if met == 'missed' else met} |"
        )
    where = (
        f"{taken['processor']} ({taken['processors']} processors, {taken['system']})"
    )
    lines += [
        "",
        f"Taken {taken['date']} on {where}, Python {taken['python']}, {versions}.",
    ]
    lines += [f"Load average {before:.2f} before, {after:.2f} after."]
    lines += [
        "Each ratio is the median of pairs that were measured in turns; 1 is the peer."
    ]
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Each row's ratio as a bar, its spread as a line, the peer at 1, and the bound as a mark."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "accel", "font.size": 9}
    )
    from matplotlib import pyplot as plt

    ratios = [row for row in rows if row.unit == "x"]
    figure, axes = plt.subplots(
        figsize=(8, 0.9 + 0.42 * len(ratios)), layout="constrained"
    )
    edge = CUT * max(row.bound for row in ratios if math.isfinite(row.bound))
    for place, row in enumerate(reversed(ratios)):
        colour = "#3b75af" if row.met else "#c44e52"
        axes.barh(place, min(row.figure, edge), height=0.6, color=colour)
        least, worst = (min(value, edge) for value in row.spread)
        axes.plot([least, worst], [place, place], color="black", linewidth=1)
        axes.plot(
            [row.bound, row.bound],
            [place - 0.38, place + 0.38],
            color="#222222",
            linewidth=2,
        )
        bounds = [row.bound] if math.isfinite(row.bound) else []
        beyond = min(max(row.figure, worst, *bounds), edge) + 0.02
        axes.text(beyond, place, f"{row.figure:.2f}", va="center")
    axes.axvline(1, color="grey", linestyle=":", linewidth=1)
    axes.set_yticks(
        range(len(ratios)),
        [f"{r.name}\nvs {r.peer}" for r in reversed(ratios)],
        fontsize=8,
    )
    axes.set_xlim(0, edge)
    axes.set_xlabel(
        "time against the peer's (dotted: 1); thick mark: bound; thin line: least to worst"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def out_of(arguments: Sequence[str]) -> Path:
    """The folder of `--out FOLDER`, else docs/benchmarks."""
    rest = list(arguments)
    if not rest:
        return FOLDER
    if len(rest) == 2 and rest[0] == "--out":
        return Path(rest[1])
    sys.exit(f"{' '.join(rest)}: expected nothing, or --out FOLDER")
