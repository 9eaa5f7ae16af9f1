"""Draw a run as a bar chart with one panel per kind of measurement.

matplotlib draws SVG and PNG files; rich draws text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accel_core.text import escape_control_chars
from accel_tools.bench.records import Measurement
from accel_tools.bench.units import format_value, format_with_prefix

__all__ = ["SUFFIXES", "draw"]

#: The suffixes of chart files; matplotlib is not needed for `.txt`.
SUFFIXES = (".svg", ".png", ".txt")
#: The heading of each panel, by the first part of the measurements' names.
_HEADINGS = {
    "copy": "Copy bandwidth (higher is better)",
    "matrix": "Matrix product rate (higher is better)",
    "launch": "Launch latency (lower is better)",
    "collective": "Collective bus bandwidth (higher is better)",
}
#: The colors of the bars for this run and for the earlier run.
_COLOUR_NOW, _COLOUR_BEFORE = "#0969da", "#afb8c1"
#: The width in columns of a text chart, and of its longest bar.
_TEXT_WIDTH, _BAR_WIDTH = 100, 40


def draw(
    path: Path,
    title: str,
    subtitle: str,
    measurements: Sequence[Measurement],
    earlier_by_name: Mapping[str, Measurement] | None = None,
) -> None:
    """Write a bar chart of `measurements` to `path`.

    Args:
        path: The chart file. Its suffix, one of `SUFFIXES`, selects the format.
        title: The first line above the chart.
        subtitle: The second line above the chart.
        measurements: The measurements of the run to draw.
        earlier_by_name: The measurements of an earlier run, which are drawn as additional bars.

    Raises:
        OSError: The file cannot be written.
    """
    panels = list(_panels(measurements))
    if earlier_by_name is None:
        earlier_by_name = {}
    if path.suffix.lower() == ".txt":
        text = _draw_text(title, subtitle, panels, earlier_by_name)
        path.write_text(text, encoding="utf-8")
    else:
        _draw_picture(path, title, subtitle, panels, earlier_by_name)


class _Panel(NamedTuple):
    """A part of the chart, with measurements of one kind."""

    heading: str
    measurements: list[Measurement]


def _panels(measurements: Sequence[Measurement]) -> Iterator[_Panel]:
    """Yield a panel for each kind of measurement that the run has."""
    for kind, heading in _HEADINGS.items():
        # The name of a measurement starts with its kind, as in "copy.to_host.pinned".
        of_kind = [m for m in measurements if m.name.startswith(f"{kind}.")]
        if of_kind:
            yield _Panel(heading, of_kind)


def _earlier_value(
    measurement: Measurement, earlier_by_name: Mapping[str, Measurement]
) -> float | None:
    """Return the measurement's value in the earlier run.

    Returns `None` if the earlier run does not contain the measurement in the same unit.
    """
    earlier = earlier_by_name.get(measurement.name)
    if earlier is None or earlier.unit != measurement.unit:
        return None
    return earlier.value


def _largest_value(panel: _Panel, earlier_by_name: Mapping[str, Measurement]) -> float:
    """Return the largest value in a panel, in this run or the earlier run.

    Returns 1 if all values are 0.
    """
    values = []
    for measurement in panel.measurements:
        values.append(measurement.value or 0.0)
        values.append(_earlier_value(measurement, earlier_by_name) or 0.0)
    # The length of a bar is divided by the result, which must not be 0.
    return max(values) or 1.0


def _bar_label(measurement: Measurement, earlier: float | None) -> str:
    """Return the text next to a bar: the value, or the reason why the value is missing.

    `earlier` is the value in the earlier run, or `None`.
    """
    if measurement.value is None:
        return escape_control_chars(
            f"{measurement.outcome.value}: {measurement.reason}"
        )
    value = format_value(measurement)
    if earlier is None:
        return value
    return f"{value}, before {format_with_prefix(earlier, measurement.unit)}"


def _draw_picture(
    path: Path,
    title: str,
    subtitle: str,
    panels: Sequence[_Panel],
    earlier_by_name: Mapping[str, Measurement],
) -> None:
    """Draw the chart with matplotlib, and write it as SVG or PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [len(panel.measurements) + 1 for panel in panels]
    if not heights:
        heights = [1]  # A chart without panels has one empty axes.
    height_in_inches = 1 + 0.32 * sum(heights)
    figure = Figure(figsize=(9, height_in_inches), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # This canvas draws without a screen.
    figure.suptitle(_heading(title, subtitle), fontsize=10, parse_math=False)
    grid = figure.subplots(
        len(heights), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axes, panel in zip(grid[:, 0], panels, strict=False):
        _draw_panel(axes, panel, earlier_by_name)
    figure.savefig(path)


def _heading(title: str, subtitle: str) -> str:
    """Return the two lines above the chart."""
    return f"{escape_control_chars(title)}\n{escape_control_chars(subtitle)}"


def _draw_panel(
    axes: Any, panel: _Panel, earlier_by_name: Mapping[str, Measurement]
) -> None:
    """Draw a bar for each measurement of a panel into matplotlib's `axes`.

    If the earlier run has the measurement, a thinner bar below shows its value in the earlier run.
    """
    titles = [measurement.title for measurement in panel.measurements]
    axes.set_title(panel.heading, loc="left", fontsize=10)
    axes.set_xticks([])
    axes.set_yticks(range(len(titles)), titles, fontsize=8)
    axes.set_ylim(len(titles) - 0.4, -0.6)  # The first measurement is at the top.
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for position, measurement in enumerate(panel.measurements):
        value = measurement.value or 0.0
        earlier = _earlier_value(measurement, earlier_by_name)
        # The error bar has the length of the interquartile range of the repeats.
        half_range = value * (measurement.spread or 0.0) / 2
        axes.barh(
            position - 0.1, value, 0.5, color=_COLOUR_NOW, xerr=half_range or None
        )
        if earlier is not None:
            axes.barh(position + 0.3, earlier, 0.3, color=_COLOUR_BEFORE)
        axes.text(
            max(value + half_range, earlier or 0.0),
            position,
            f" {_bar_label(measurement, earlier)}",
            va="center",
            fontsize=8,
            parse_math=False,
        )
    # The labels need space to the right of the longest bar.
    axes.set_xlim(0, 1.6 * max(axes.get_xlim()[1], 1e-30))


def _draw_text(
    title: str,
    subtitle: str,
    panels: Sequence[_Panel],
    earlier_by_name: Mapping[str, Measurement],
) -> str:
    """Draw the chart as text."""
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(
        file=io.StringIO(), width=_TEXT_WIDTH, color_system=None, legacy_windows=False
    )
    console.print(Text(_heading(title, subtitle)))
    for panel in panels:
        largest_value = _largest_value(panel, earlier_by_name)
        table = Table.grid(padding=(0, 2, 0, 0))
        for measurement in panel.measurements:
            earlier = _earlier_value(measurement, earlier_by_name)
            bar: Bar | str = ""
            if measurement.value is not None:
                bar = Bar(largest_value, 0, measurement.value, width=_BAR_WIDTH)
            label = Text(_bar_label(measurement, earlier))
            table.add_row(measurement.title, bar, label)
            if earlier is not None:
                bar = Bar(largest_value, 0, earlier, width=_BAR_WIDTH)
                table.add_row("  before", bar, "")
        console.print(Text(f"\n{panel.heading}"))
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)
