"""`accel list`: every backend that is installed or built in, and whether it can be used here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accel_core.cli import options
from accel_core.cli.output import Output, answering

if TYPE_CHECKING:
    from rich.console import RenderableType

    from accel_core.detection.records import Verdict
    from accel_core.detection.survey import Survey
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
        from accel_core.detection.survey import survey

        everything = survey(settings, probing=not no_probe)
        star = _starred(everything, settings)
        if as_json:
            output.write_json(_document(everything, star))
        else:
            output.write(_page(everything, star, settings, output))


def _starred(everything: Survey, settings: Settings) -> Verdict | None:
    """The verdict on the backend that is chosen, or else on the one that is pinned and cannot be honoured."""
    from accel_core.detection.discovery import find

    choice = everything.choice
    if choice is not None and choice.candidate is not None:
        return next(v for v in everything.verdicts if v.is_about(choice.candidate))
    if len(settings.pins) != 1:
        return None
    meant = choice.considered if choice is not None else find(settings.pins[0])
    if len({c.distribution for c in meant}) != 1:  # nobody's, or several distributions'
        return None
    return next((v for v in everything.verdicts if v.is_about(meant[0])), None)


def _document(everything: Survey, star: Verdict | None) -> dict[str, object]:
    from accel_core._support.torch_import import torch_build

    build, choice = torch_build(), everything.choice
    return {
        "torch": build.version if build else None,
        "probed": choice is not None,
        "chosen": choice.selection.chosen if choice else None,
        "how": choice.selection.how.value if choice and star else None,
        "missing_plugins": list(everything.missing_plugins),
        "backends": [{**v.to_dict(), "marked": v is star} for v in everything.verdicts],
    }


def _page(everything: Survey, star: Verdict | None, settings: Settings, output: Output) -> str:
    """The table, and below it what concerns all backends."""
    from accel_core.cli import render

    rows = [_row(verdict, marked=verdict is star) for verdict in everything.verdicts]
    parts: list[RenderableType] = [*render.listing(_TITLES, rows, output), ""]
    parts += [render.paragraph(note) for note in _notes(everything, star, settings)]
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


def _notes(everything: Survey, star: Verdict | None, settings: Settings) -> list[tuple[str, str]]:
    """What is chosen, what is missing, what is there without a plugin."""
    from accel_core._support.torch_import import torch_build

    notes = [_chosen(everything, star, settings)]
    if torch_build() is None:
        notes.append(("torch is not installed, so no backend can be used: pip install torch", "yellow"))
    notes += [(line, "yellow") for line in everything.missing_plugins]
    return notes


def _chosen(everything: Survey, star: Verdict | None, settings: Settings) -> tuple[str, str]:
    choice = everything.choice
    more = "`accel why` says more."
    if settings.pins:
        if star is None:
            return f"{settings.asked} names no backend that could be chosen; {more}", "yellow"
        if choice is not None and choice.error is not None:
            return f"* pinned by {settings.asked}, which cannot be honoured; {more}", "yellow"
        return f"* {'pinned' if len(settings.pins) == 1 else 'preferred'} by {settings.asked}; {more}", ""
    if choice is None:
        return "Not probed, so which one would be chosen is not known: `accel list` probes.", "dim"
    if choice.candidate is not None:
        return f"* {choice.candidate.name} would be chosen: {choice.selection.how.words}. {more}", ""
    if any(verdict.usable for verdict in everything.verdicts):
        # What is usable and yet not chosen is the CPU, which the settings refuse.
        return f"Nothing would be chosen: {choice.selection.problem.partition(chr(10))[0]} {more}", "yellow"
    return f"Nothing is usable; {more}", "yellow"
