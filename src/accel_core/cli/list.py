"""`accel list`: every backend that is installed or built in, and whether it can be used here."""

from __future__ import annotations

import click

from accel_core._support.torch_import import torch_build
from accel_core.cli import options, remarks, text
from accel_core.cli.output import answering
from accel_core.cli.page import Cell, Paragraph, Part, Table, paragraph
from accel_core.detection import Status, Verdict
from accel_core.detection.isolated import IsolatedLoader
from accel_core.detection.messages import folded
from accel_core.detection.select import Survey, survey
from accel_core.machine.vendors import sourced
from accel_core.settings import Settings

_TITLES = ("  BACKEND", "VERDICT", "DEVICES, OR WHY NOT")
_ALL_TITLES = ("  NAME", "VERSION", "DISTRIBUTION", "PRIORITY", "VENDOR IMPORT", "VERDICT", "REASON")


class _List(click.Command):
    """A command that knows which one takes a name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        if names := super().parse_args(ctx, args):
            raise click.UsageError(f"accel list takes no name. For one backend: accel why {names[0]}", ctx)
        return names


@click.command("list", cls=_List)
@click.option(
    "--all", "everything", is_flag=True, help="All that is known of each backend, in the order of rank."
)
@click.option(
    "--no-probe", is_flag=True, help="Only what is known without importing torch or a vendor's package."
)
@options.probe_timeout
@options.as_json
@click.pass_context
def command(
    ctx: click.Context, *, everything: bool, no_probe: bool, timeout: float | None, as_json: bool
) -> None:
    """List the backends: what can be used, and why not the others.

    Each is probed in a process of its own, all at once. A star marks the one that is chosen or pinned;
    the verdicts themselves do not depend on DS_ACCELERATOR. The exit status is 1 if a backend gave
    no answer in time, so that the choice is not known.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        surveyed = survey(settings, probing=not no_probe, load=IsolatedLoader(settings.probe_timeout))
        marked = _marked(surveyed, settings)
        if as_json:
            output.write_json(_document(surveyed, marked))
        else:
            tables = _everything(surveyed, marked) if everything else _tables(surveyed, marked)
            notes = [paragraph(note) for note in _notes(surveyed, marked, settings, everything=everything)]
            output.write_page([*tables, Paragraph(), *notes])
    ctx.exit(1 if surveyed.choice is not None and surveyed.choice.selection.is_unknown else 0)


def _marked(surveyed: Survey, settings: Settings) -> Verdict | None:
    """The verdict on the backend that is chosen, or else on the one that is pinned and cannot be honoured."""
    choice = surveyed.choice
    if choice is not None and choice.candidate is not None:
        return next(v for v in surveyed.verdicts if v.is_about(choice.candidate))
    if len(settings.pins) != 1:
        return None
    meant = choice.considered if choice is not None else surveyed.pinned
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
        "backends": [{**text.described(v), "marked": v is marked} for v in surveyed.verdicts],
    }


def _tables(surveyed: Survey, marked: Verdict | None) -> list[Part]:
    """List what people look for first: chosen, usable, present but broken, without a device, not installed.

    The built-in `generic` gets no row if no device is left for it.
    """

    def place(v: Verdict) -> int:
        return [is_marked(v), v.usable, v.needs_mending, v.status is Status.NOT_PROBED, True].index(True)

    def is_marked(verdict: Verdict) -> bool:
        return marked is not None and verdict.is_about(marked)

    def is_idle(verdict: Verdict) -> bool:
        return verdict.builtin and verdict.status is Status.NO_DEVICE and not verdict.broken

    rows, missing = folded([v for v in surveyed.verdicts if v is marked or not is_idle(v)])
    rows.sort(key=place)  # stable: the order of rank within each
    cells = [[_name(v, marked=is_marked(v)), _status(v), (_remark(v), ""), _hint(v)] for v in rows]
    parts: list[Part] = [Table(_TITLES, cells)] if rows else []
    if missing:
        parts += [*([Paragraph()] if rows else []), paragraph((f"{text.uninstalled(missing)}.", "dim"))]
    return parts


def _everything(surveyed: Survey, marked: Verdict | None) -> list[Part]:
    rows = [
        [
            _name(v, marked=v is marked),
            (text.clean(v.provenance.version), ""),
            (text.clean(v.provenance.distribution), ""),
            (str(v.priority) if v.device_type else "-", ""),
            (", ".join(v.vendor_import) or "-", ""),
            _status(v),
            (text.remark(v), ""),
            _hint(v),
        ]
        for v in surveyed.verdicts
    ]
    return [Table(_ALL_TITLES, rows)]


def _name(verdict: Verdict, *, marked: bool) -> Cell:
    return f"{'*' if marked else ' '} {text.clean(verdict.name)}", "bold"


def _status(verdict: Verdict) -> Cell:
    return verdict.status.words, text.style(verdict)


def _remark(verdict: Verdict) -> str:
    """The devices and what they are, of one that is usable; else the reason."""
    if not verdict.usable or verdict.reason:
        return text.clean(verdict.reason)
    devices = text.count(verdict.devices, "device") if verdict.devices else ""
    return ": ".join(filter(None, [devices, text.clean(verdict.description)]))


def _hint(verdict: Verdict) -> Cell:
    return f"hint: {text.clean(verdict.hint)}" if verdict.hint else "", "dim"


def _notes(surveyed: Survey, marked: Verdict | None, settings: Settings, *, everything: bool) -> list[Cell]:
    """Name the choice, what is missing, devices without a plugin, and the commands that show more."""
    selection = surveyed.choice.selection if surveyed.choice is not None else None
    notes = [_choice(surveyed, marked, settings)]
    notes += [(text.clean(line), "yellow") for line in (selection.notes if selection else ())]
    if not everything:
        notes.append(("`accel why NAME` says all of one backend, `accel list --all` of each.", "dim"))
    if torch_build() is None:
        notes.append((sourced("torch is not installed, so no backend can be used: accel setup"), "yellow"))
    notes += [(line, "yellow") for line in (*surveyed.missing_plugins, *remarks(surveyed.verdicts))]
    notes += [(text.clean(line), "yellow") for line in (selection.autoload if selection else ())]
    return notes


def _choice(surveyed: Survey, marked: Verdict | None, settings: Settings) -> Cell:
    """Name the choice, in one line."""
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
    if choice.selection.is_unknown:
        return choice.selection.problem, "yellow"
    if choice.candidate is not None:
        return f"* {choice.candidate.name} would be chosen: {choice.selection.how.words}. {more}", ""
    if any(verdict.usable for verdict in surveyed.verdicts):
        # What is usable and yet not chosen is the CPU, which the settings refuse.
        return f"Nothing would be chosen: {choice.selection.problem.partition(chr(10))[0]} {more}", "yellow"
    return f"Nothing is usable; {more}", "yellow"
