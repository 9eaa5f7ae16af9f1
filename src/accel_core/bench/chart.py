"""A run as a picture: bars in a panel for each kind, drawn as SVG here, or as PNG by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from accel_core.bench.records import Measurement, Outcome
from accel_core.bench.units import in_words, scaled

__all__ = ["Bar", "Picture", "Words", "draw", "png", "svg"]


class Bar(NamedTuple):
    """A filled rectangle; the origin of all lengths, in pixels, is the top left corner."""

    left: float
    top: float
    width: float
    height: float
    colour: str


class Words(NamedTuple):
    """A line of text, its baseline at `bottom`."""

    left: float
    bottom: float
    text: str
    size: float = 13
    colour: str = "#1f2328"
    bold: bool = False
    #: Whether `left` is where the text ends.
    ends: bool = False


class Picture(NamedTuple):
    """What is drawn, in the order in which it is drawn."""

    width: int
    height: int
    parts: tuple[Bar | Words, ...]


_WIDTH = 900
_MARGIN = 24
#: Where bars begin, and the longest of a panel ends; right of it its figure.
_FROM, _TO = 190, 600
_ROW = 26
#: Of a panel's heading.
_HEAD = 40
_NOW, _BEFORE, _SPREAD, _BAD, _QUIET = "#0969da", "#afb8c1", "#0a3069", "#cf222e", "#656d76"
#: Panels: the first part of the measurements' names, and the heading.
_PANELS = {
    "copy": "Copies, bytes in a second",
    "matrix": "Matrix products, operations in a second",
    "launch": "Launches, the time of one (shorter is better)",
    "collective": "Collectives, bus bandwidth",
}
#: Characters of a reason or a heading that fit.
_ROOM = 78
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def draw(
    title: str,
    subtitle: str,
    measurements: Sequence[Measurement],
    before: Mapping[str, Measurement] | None = None,
) -> Picture:
    """The picture of a run; with `before`, another run's measurements by name, grey bars for these too."""
    parts: list[Bar | Words] = [
        Words(_MARGIN, 38, _cut(title, 88), 18, bold=True),
        Words(_MARGIN, 60, _cut(subtitle, 118), 12, _QUIET),
        Bar(_MARGIN, 77, 12, 2, _SPREAD),
        Words(_MARGIN + 18, 83, "the middle half of the repeats", 12),
    ]
    if before:
        parts += [Bar(240, 72, 12, 12, _NOW), Words(258, 83, "now", 12)]
        parts += [Bar(310, 72, 12, 12, _BEFORE), Words(328, 83, "before", 12)]
    top = 92.0
    for kind, heading in _PANELS.items():
        rows = [m for m in measurements if m.name.partition(".")[0] == kind]
        if rows:
            parts += [
                Bar(_MARGIN, top + 10, _WIDTH - 2 * _MARGIN, 1, "#d0d7de"),
                Words(_MARGIN, top + 30, heading, 14, bold=True),
            ]
            parts += _panel(rows, before or {}, top + _HEAD)
            top += _HEAD + _ROW * len(rows)
    return Picture(_WIDTH, round(top + 20), tuple(parts))


def _panel(rows: Sequence[Measurement], before: Mapping[str, Measurement], top: float) -> list[Bar | Words]:
    """The rows of a panel, on a scale of their own: the largest value fills it."""
    old = [before[row.name].value or 0.0 for row in rows if row.name in before]
    largest = max([row.value or 0.0 for row in rows] + old) or 1.0
    scale = (_TO - _FROM) / largest
    parts: list[Bar | Words] = []
    for row in rows:
        parts.append(Words(_FROM - 10, top + 17, row.title, ends=True))
        parts += _row(row, before.get(row.name), top, scale)
        top += _ROW
    return parts


def _row(row: Measurement, before: Measurement | None, top: float, scale: float) -> list[Bar | Words]:
    if row.value is None:
        colour = _QUIET if row.outcome is Outcome.NOT_MEASURED else _BAD
        return [Words(_FROM, top + 17, _cut(f"{row.outcome.value}: {row.reason}", _ROOM), 12, colour)]
    old = before.value if before is not None and before.unit == row.unit else None
    height = 16 if old is None else 10
    length = max(1.0, row.value * scale)
    parts: list[Bar | Words] = [Bar(_FROM, top + 4, length, height, _NOW)]
    half = min(length, row.value * (row.spread or 0) / 2 * scale)
    if half >= 1:
        # The middle half of the repeats, within the scale.
        right = min(_FROM + length + half, _TO + 40.0)
        parts.append(
            Bar(_FROM + length - half, top + 4 + height / 2 - 1, right - _FROM - length + half, 2, _SPREAD)
        )
        length = right - _FROM
    figure = in_words(row)
    if old is not None:
        parts.append(Bar(_FROM, top + 4 + height, max(1.0, old * scale), 6, _BEFORE))
        length = max(length, old * scale)
        figure += f", before {scaled(old, row.unit)}"
    parts.append(Words(_FROM + length + 8, top + 17, figure, 12))
    return parts


def _cut(text: str, most: int) -> str:
    """The text on one line and not longer than that; without what no XML can hold."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


# --- drawing -------------------------------------------------------------------------------------------


def svg(picture: Picture) -> str:
    """The picture as an SVG document, on white: a dark page around it changes nothing."""
    size = f'width="{picture.width}" height="{picture.height}"'
    box = f'viewBox="0 0 {picture.width} {picture.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{_FONT}">',
        f'<rect {size} fill="#ffffff"/>',
    ]
    for part in picture.parts:
        if isinstance(part, Bar):
            lines.append(
                f'<rect x="{part.left:.1f}" y="{part.top:.1f}" width="{part.width:.1f}" '
                f'height="{part.height:.1f}" fill="{part.colour}"/>'
            )
        else:
            more = ' font-weight="600"' if part.bold else ""
            more += ' text-anchor="end"' if part.ends else ""
            lines.append(
                f'<text x="{part.left:.1f}" y="{part.bottom:.1f}" font-size="{part.size:g}" '
                f'fill="{part.colour}"{more}>{escape(part.text)}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def png(picture: Picture, path: Path) -> None:
    """Write the picture as PNG, at twice its size. Needs matplotlib, and no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(picture.width / 100, picture.height / 100), dpi=200, facecolor="#ffffff")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    for part in picture.parts:
        if isinstance(part, Bar):
            corner = (part.left, part.top)
            axes.add_patch(Rectangle(corner, part.width, part.height, color=part.colour, linewidth=0))
        else:
            axes.text(
                part.left, part.bottom, part.text, fontsize=part.size * 0.68, color=part.colour,
                weight="bold" if part.bold else "normal", ha="right" if part.ends else "left",
                va="baseline", parse_math=False,
            )  # fmt: skip
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png")
