"""Draw a run as a bar chart with one panel per kind of measurement.

matplotlib draws SVG and PNG files; rich draws text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_core.text import escape_control_chars
from accel_tools.bench.records import Measurement
from accel_tools.bench.units import in_words, scaled

__all__ = ["FORMS", "draw"]

#: Suffixes of chart files; `.txt` needs no matplotlib.
FORMS = (".svg", ".png", ".txt")
#: The heading of each panel, by the first part of the measurements' names.
_PANELS = {
    "copy": "Copy bandwidth (higher is better)",
    "matrix": "Matrix product rate (higher is better)",
    "launch": "Launch latency (lower is better)",
    "collective": "Collective bus bandwidth (higher is better)",
}
_NOW, _BEFORE = "#0969da", "#afb8c1"
#: The width in columns of a text chart, and of its longest bar.
_TEXT_WIDTH, _BAR_WIDTH = 100, 40


def draw(
    path: Path,
    title: str,
    subtitle: str,
    measurements: Sequence[Measurement],
    before: Mapping[str, Measurement] | None = None,
) -> None:
    """Write a bar chart of `measurements` to `path`.

    Args:
        path: The chart file. Its suffix, one of `FORMS`, selects the format.
        title: The first line above the chart.
        subtitle: The second line above the chart.
        measurements: The run to draw.
        before: The measurements of an earlier run by name, drawn as additional bars.

    Raises:
        OSError: The file cannot be written.
    """
    panels = list(_panels(measurements))
    if path.suffix.lower() == ".txt":
        path.write_text(
            _as_text(title, subtitle, panels, before or {}), encoding="utf-8"
        )
    else:
        _as_picture(path, title, subtitle, panels, before or {})


def _panels(
    measurements: Sequence[Measurement],
) -> Iterator[tuple[str, list[Measurement]]]:
    """Yield the heading and the measurements of each panel that has measurements."""
    for kind, heading in _PANELS.items():
        rows = [m for m in measurements if m.name.partition(".")[0] == kind]
        if rows:
            yield heading, rows


def _values(
    row: Measurement, before: Mapping[str, Measurement]
) -> tuple[float, float | None]:
    """Return the value in this run and the value in the earlier run.

    The earlier value is `None` if the earlier run does not have the measurement in the
    same unit.
    """
    old = before.get(row.name)
    if old is None or old.unit != row.unit:
        return row.value or 0.0, None
    return row.value or 0.0, old.value


def _bar_label(row: Measurement, old: float | None) -> str:
    """Return the text next to a bar: the value, or the reason why the value is missing."""
    if row.value is None:
        return escape_control_chars(f"{row.outcome.value}: {row.reason}")
    if old is None:
        return in_words(row)
    return f"{in_words(row)}, before {scaled(old, row.unit)}"


def _as_picture(
    path: Path,
    title: str,
    subtitle: str,
    panels: Sequence[tuple[str, list[Measurement]]],
    before: Mapping[str, Measurement],
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [len(rows) + 1 for _, rows in panels] or [1]
    figure = Figure(figsize=(9, 1 + 0.32 * sum(heights)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # This canvas draws without a screen.
    figure.suptitle(_heading(title, subtitle), fontsize=10, parse_math=False)
    axes = figure.subplots(
        len(heights), squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for panel, (heading, rows) in zip(axes, panels, strict=False):
        _draw_panel(panel, heading, rows, before)
    figure.savefig(path)


def _heading(title: str, subtitle: str) -> str:
    return f"{escape_control_chars(title)}\n{escape_control_chars(subtitle)}"


def _draw_panel(
    panel: Any,
    heading: str,
    rows: Sequence[Measurement],
    before: Mapping[str, Measurement],
) -> None:
    """Draw a bar for each measurement into the matplotlib axes `panel`.

    A thinner bar below it shows the measurement of the earlier run, if there is one.
    """
    panel.set_title(heading, loc="left", fontsize=10)
    panel.set_xticks([])
    panel.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for position, row in enumerate(rows):
        now, old = _values(row, before)
        # The error bar has the length of the interquartile range of the repeats.
        error = now * (row.spread or 0.0) / 2
        panel.barh(position - 0.1, now, 0.5, color=_NOW, xerr=error or None)
        if old is not None:
            panel.barh(position + 0.3, old, 0.3, color=_BEFORE)
        panel.text(
            max(now + error, old or 0.0),
            position,
            f" {_bar_label(row, old)}",
            va="center",
            fontsize=8,
            parse_math=False,
        )
    panel.set_xlim(0, 1.6 * max(panel.get_xlim()[1], 1e-30))


def _as_text(
    title: str,
    subtitle: str,
    panels: Sequence[tuple[str, list[Measurement]]],
    before: Mapping[str, Measurement],
) -> str:
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(
        file=io.StringIO(), width=_TEXT_WIDTH, color_system=None, legacy_windows=False
    )
    console.print(Text(_heading(title, subtitle)))
    for heading, rows in panels:
        values = [_values(row, before) for row in rows]
        largest = max(max(now, old or 0.0) for now, old in values) or 1.0
        table = Table.grid(padding=(0, 2, 0, 0))
        for row, (now, old) in zip(rows, values, strict=True):
            bar = (
                Bar(largest, 0, now, width=_BAR_WIDTH) if row.value is not None else ""
            )
            table.add_row(row.title, bar, Text(_bar_label(row, old)))
            if old is not None:
                table.add_row("  before", Bar(largest, 0, old, width=_BAR_WIDTH), "")
        console.print(Text(f"\n{heading}"))
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)
