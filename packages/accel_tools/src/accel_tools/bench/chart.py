"""Draw a run as a chart: bars in a panel for each kind, as SVG or PNG by matplotlib, or as text by rich."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from accel_core.text import escape_control_chars
from accel_tools.bench.records import Measurement
from accel_tools.bench.units import in_words, scaled

__all__ = ["FORMS", "draw"]

#: The kinds of chart, by the end of the file's name; the last needs no matplotlib.
FORMS = (".svg", ".png", ".txt")
#: Panels: the first part of the measurements' names, and the heading.
_PANELS = {
    "copy": "Copies, bytes in a second",
    "matrix": "Matrix products, operations in a second",
    "launch": "Launches, the time of one (shorter is better)",
    "collective": "Collectives, bus bandwidth",
}
_NOW, _BEFORE = "#0969da", "#afb8c1"
#: Columns of a chart as text, and of its longest bar.
_WIDTH, _BAR = 100, 40


def draw(
    path: Path,
    title: str,
    subtitle: str,
    measurements: Sequence[Measurement],
    before: Mapping[str, Measurement] | None = None,
) -> None:
    """Write the chart of a run to `path`, whose suffix is one of `FORMS`.

    `before`: another run's measurements by name; they get bars too. Raises `OSError` if the file cannot be
    written.
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
    for kind, heading in _PANELS.items():
        rows = [m for m in measurements if m.name.partition(".")[0] == kind]
        if rows:
            yield heading, rows


def _values(
    row: Measurement, before: Mapping[str, Measurement]
) -> tuple[float, float | None]:
    """Return the value now, and the one before where it has the same unit."""
    old = before.get(row.name)
    return (
        row.value or 0.0,
        old.value if old is not None and old.unit == row.unit else None,
    )


def _figure(row: Measurement, old: float | None) -> str:
    """Return the figure beside a bar, or the reason why there is none."""
    if row.value is None:
        return escape_control_chars(f"{row.outcome.value}: {row.reason}")
    return in_words(row) + (
        f", before {scaled(old, row.unit)}" if old is not None else ""
    )


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
    FigureCanvasAgg(figure)  # needs no screen
    figure.suptitle(
        f"{escape_control_chars(title)}\n{escape_control_chars(subtitle)}",
        fontsize=10,
        parse_math=False,
    )
    axes = figure.subplots(
        len(heights), squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for panel, (heading, rows) in zip(axes, panels, strict=False):
        panel.set_title(heading, loc="left", fontsize=10)
        panel.set_xticks([])
        panel.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=8)
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        for place, row in enumerate(rows):
            now, old = _values(row, before)
            half = now * (row.spread or 0.0) / 2  # the middle half of the repeats
            panel.barh(place - 0.1, now, 0.5, color=_NOW, xerr=half or None)
            if old is not None:
                panel.barh(place + 0.3, old, 0.3, color=_BEFORE)
            said = f" {_figure(row, old)}"
            panel.text(
                max(now + half, old or 0.0),
                place,
                said,
                va="center",
                fontsize=8,
                parse_math=False,
            )
        panel.set_xlim(0, 1.6 * max([panel.get_xlim()[1], 1e-30]))
    figure.savefig(path)


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
        file=io.StringIO(), width=_WIDTH, color_system=None, legacy_windows=False
    )
    console.print(
        Text(f"{escape_control_chars(title)}\n{escape_control_chars(subtitle)}")
    )
    for heading, rows in panels:
        largest = (
            max([value or 0.0 for row in rows for value in _values(row, before)]) or 1.0
        )
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            now, old = _values(row, before)
            bar = Bar(largest, 0, now, width=_BAR) if row.value is not None else ""
            table.add_row(row.title, bar, Text(_figure(row, old)))
            if old is not None:
                table.add_row("  before", Bar(largest, 0, old, width=_BAR), "")
        console.print(Text(f"\n{heading}"))
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return "".join(
        f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines()
    )
