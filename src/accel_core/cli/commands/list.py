"""`accel list`: every backend that is installed or built in, and whether it can be used here."""

from __future__ import annotations

import click

from accel_core._support.torch_import import torch_build
from accel_core.cli import options, text
from accel_core.cli.output import answering
from accel_core.cli.page import Cell, Paragraph, Part, Table, paragraph
from accel_core.detection.discovery import find
from accel_core.detection.records import Verdict
from accel_core.detection.survey import Survey, survey
from accel_core.settings import Settings

__all__ = ["command"]

_TITLES = ("  NAME", "VERSION", "DISTRIBUTION", "PRIORITY", "VENDOR IMPORT", "VERDICT", "REASON")


@click.command("list")
@click.option(
    "--no-probe", is_flag=True, help="Only what is known without importing torch or a vendor's package."
)
@options.probe_timeout
@options.as_json
def command(*, no_probe: bool, timeout: float | None, as_json: bool) -> None:
    """List every backend, in the order in which they rank.

    Each is probed in a process of its own, all at once. A star marks the one that is chosen or pinned;
    the verdicts themselves do not depend on DS_ACCELERATOR.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        surveyed = survey(settings, probing=not no_probe)
        marked = _marked(surveyed, settings)
        if as_json:
            output.write_json(_document(surveyed, marked))
        else:
            output.write_page(_page(surveyed, marked, settings))


def _marked(surveyed: Survey, settings: Settings) -> Verdict | None:
    """The verdict on the backend that is chosen, or else on the one that is pinned and cannot be honoured."""
    choice = surveyed.choice
    if choice is not None and choice.candidate is not None:
        return next(v for v in surveyed.verdicts if v.is_about(choice.candidate))
    if len(settings.pins) != 1:
        return None
    meant = choice.considered if choice is not None else find(settings.pins[0])
    if len({c.distribution for c in meant}) != 1:  # nobody's, or several distributions'
        return None
    return next((v for v in surveyed.verdicts if v.is_about(meant[0])), None)


def _document(surveyed: Survey, marked: Verdict | None) -> dict[str, object]:
    build, choice = torch_build(), surveyed.choice
    return {
        "torch": build.version if build else None,
        "probed": choice is not None,
        "chosen": choice.selection.chosen if choice else None,
        "how": choice.selection.how.value if choice and marked else None,
        "missing_plugins": list(surveyed.missing_plugins),
        "autoload": list(choice.selection.autoload) if choice else [],
        "backends": [{**v.to_dict(), "marked": v is marked} for v in surveyed.verdicts],
    }


def _page(surveyed: Survey, marked: Verdict | None, settings: Settings) -> list[Part]:
    """The table, and below it what concerns all backends."""
    rows = [_row(verdict, marked=verdict is marked) for verdict in surveyed.verdicts]
    notes = [paragraph(note) for note in _notes(surveyed, marked, settings)]
    return [Table(_TITLES, rows), Paragraph(), *notes]


def _row(verdict: Verdict, *, marked: bool) -> list[Cell]:
    return [
        (f"{'*' if marked else ' '} {text.clean(verdict.name)}", "bold"),
        (text.clean(verdict.provenance.version), ""),
        (text.clean(verdict.provenance.distribution), ""),
        (str(verdict.priority), ""),
        (", ".join(verdict.vendor_import) or "-", ""),
        (text.status(verdict), text.style(verdict)),
        (text.remark(verdict), ""),
        (f"hint: {text.clean(verdict.hint)}" if verdict.hint else "", "dim"),
    ]


def _notes(surveyed: Survey, marked: Verdict | None, settings: Settings) -> list[Cell]:
    """What is chosen, what is missing, what is there without a plugin."""
    notes = [_choice(surveyed, marked, settings)]
    if torch_build() is None:
        notes.append(("torch is not installed, so no backend can be used: pip install torch", "yellow"))
    notes += [(line, "yellow") for line in surveyed.missing_plugins]
    if surveyed.choice is not None:
        selection = surveyed.choice.selection
        notes += [(text.clean(line), "yellow") for line in (*selection.autoload, *selection.notes)]
    return notes


def _choice(surveyed: Survey, marked: Verdict | None, settings: Settings) -> Cell:
    """What would be chosen, in one line."""
    choice = surveyed.choice
    more = "`accel why` says more."
    if settings.pins:
        if marked is None:
            return f"{settings.asked} names no backend that could be chosen; {more}", "yellow"
        if choice is not None and choice.error is not None:
            return f"* pinned by {settings.asked}, which cannot be honoured; {more}", "yellow"
        return f"* {'pinned' if len(settings.pins) == 1 else 'preferred'} by {settings.asked}; {more}", ""
    if choice is None:
        return "Not probed, so which one would be chosen is not known: `accel list` probes.", "dim"
    if choice.candidate is not None:
        return f"* {choice.candidate.name} would be chosen: {choice.selection.how.words}. {more}", ""
    if any(verdict.usable for verdict in surveyed.verdicts):
        # What is usable and yet not chosen is the CPU, which the settings refuse.
        return f"Nothing would be chosen: {choice.selection.problem.partition(chr(10))[0]} {more}", "yellow"
    return f"Nothing is usable; {more}", "yellow"
