"""`accel list`: every backend that is installed or built in, and whether it can be used here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accel_core.cli import options
from accel_core.cli.output import Output, answering

if TYPE_CHECKING:
    from rich.console import RenderableType

    from accel_core.cli.overview import Overview
    from accel_core.detection.records import Verdict
    from accel_core.settings import Settings

__all__ = ["list_backends"]

_TITLES = ("  NAME", "VERSION", "DISTRIBUTION", "PRIORITY", "VENDOR IMPORT", "VERDICT", "REASON")


@click.command("list")
@click.option(
    "--no-probe", is_flag=True, help="Only what is known without importing torch or a vendor's package."
)
@options.probe_timeout
@options.as_json
def list_backends(*, no_probe: bool, timeout: float | None, as_json: bool) -> None:
    """List every backend, in the order in which they rank.

    Each is probed in a process of its own, all at once. A star marks the one that is chosen or pinned;
    the verdicts themselves do not depend on DS_ACCELERATOR.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        from accel_core.cli.overview import look

        overview = look(settings, probing=not no_probe)
        if as_json:
            output.write_json(overview.to_dict())
        else:
            output.write(_page(overview, settings, output))


def _page(overview: Overview, settings: Settings, output: Output) -> str:
    """The table, and below it what concerns all backends."""
    from accel_core.cli import render

    marked = overview.mark.verdict if overview.mark else None
    rows = [_row(verdict, marked=verdict is marked) for verdict in overview.verdicts]
    parts: list[RenderableType] = [*render.listing(_TITLES, rows, output), ""]
    parts += [render.paragraph(note) for note in _notes(overview, settings)]
    return render.to_text(parts, output)


def _row(verdict: Verdict, *, marked: bool) -> list[tuple[str, str]]:
    from accel_core.cli import words

    return [
        (f"{'*' if marked else ' '} {words.clean(verdict.name)}", "bold"),
        (words.clean(verdict.provenance.version), ""),
        (words.clean(verdict.provenance.distribution), ""),
        (str(verdict.priority), ""),
        (", ".join(verdict.vendor_import) or "-", ""),
        (words.status(verdict), words.style(verdict)),
        (words.found(verdict), ""),
        (f"hint: {words.clean(verdict.hint)}" if verdict.hint else "", "dim"),
    ]


def _notes(overview: Overview, settings: Settings) -> list[tuple[str, str]]:
    """What is chosen, what is missing, what is there without a plugin."""
    notes = [_chosen(overview, settings)]
    if overview.torch is None:
        notes.append(("torch is not installed, so no backend can be used: pip install torch", "yellow"))
    notes += [(line, "yellow") for line in overview.unserved]
    return notes


def _chosen(overview: Overview, settings: Settings) -> tuple[str, str]:
    from accel_core.cli import words

    mark = overview.mark
    more = "`accel why` says more."
    if settings.pins:
        if mark is None:
            return f"{settings.asked} names no backend that could be chosen; {more}", "yellow"
        if mark.honoured is False:
            return f"* pinned by {settings.asked}, which cannot be honoured; {more}", "yellow"
        return f"* {'pinned' if len(settings.pins) == 1 else 'preferred'} by {settings.asked}; {more}", ""
    if not overview.probed:
        return "Not probed, so which one would be chosen is not known: `accel list` probes.", "dim"
    if mark is None:
        return f"Nothing is usable; {more}", "yellow"
    strict = " ACCEL_STRICT=1 may refuse it." if settings.strict and mark.how.value == "fallback" else ""
    return f"* {mark.verdict.name} would be chosen: {words.how_chosen(mark.how)}.{strict} {more}", ""
