"""`accel list`: every backend that is installed or built in, and whether it can be used here."""

from collections.abc import Iterable

import click

from accel_core.cli import page, remarks
from accel_core.cli.output import answering, as_json, probe_timeout, read_settings
from accel_core.detection import Status, Verdict, messages
from accel_core.detection.select import Survey, survey
from accel_core.hardware.vendors import command_with_its_package
from accel_core.settings import Settings
from accel_core.text import one_line
from accel_core.torch_import import torch_build

_TITLES = ("  BACKEND", "VERDICT", "DEVICES, OR WHY NOT")
_ALL_TITLES = ("  NAME", "VERSION", "DISTRIBUTION", "PRIORITY", "VENDOR IMPORT", "VERDICT", "REASON")


def _no_name(ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        raise click.UsageError(f"accel list takes no name. For one backend: accel why {names[0]}", ctx)


@click.command("list")
@click.argument("names", nargs=-1, metavar="", expose_value=False, callback=_no_name)
@click.option("--all", "everything", is_flag=True, help="All that is known of each, in order of rank.")
@click.option("--no-probe", is_flag=True, help="Only what is known without importing torch or a vendor.")
@probe_timeout
@as_json
def command(*, everything: bool, no_probe: bool, timeout: float | None, as_json: bool) -> None:
    """List the backends: what can be used, and why not the others.

    Each is probed in a process of its own, all at once. A star marks the one that is chosen or pinned;
    the verdicts themselves do not depend on DS_ACCELERATOR. The exit status is 1 if a backend gave
    no answer in time, so that the choice is not known.
    """
    with answering(as_json=as_json) as output:
        settings = read_settings(timeout)
        surveyed = survey(settings, probing=not no_probe)
        marked = _marked(surveyed)
        if as_json:
            output.write_json(_document(surveyed, marked))
        else:
            tables = _all(surveyed, marked) if everything else _short(surveyed, marked)
            notes = _notes(surveyed, marked, settings, everything=everything)
            output.write_page([*tables, *map(page.paragraph, notes)])
    click.get_current_context().exit(int(bool(surveyed.choice and surveyed.choice.selection.is_unknown)))


def _marked(surveyed: Survey) -> Verdict | None:
    """The verdict on the backend that is chosen, or else on the one that is pinned and cannot be honoured."""
    chosen = surveyed.choice.candidate if surveyed.choice else None
    meant = (chosen,) if chosen else surveyed.pinned
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
        "problem": choice.selection.problem if choice else "",
        "missing_plugins": list(surveyed.missing_plugins),
        "autoload": list(choice.selection.autoload) if choice else [],
        "backends": [{**page.described(v), "marked": v is marked} for v in surveyed.verdicts],
    }


def _short(surveyed: Survey, marked: Verdict | None) -> list[page.Part]:
    """List what people look for first: chosen, usable, present but broken, without a device, not installed.

    The built-in `generic` gets no row if no device is left for it, and nothing registers one.
    """

    def place(v: Verdict) -> int:
        first = marked is not None and v.is_about(marked)
        return [first, v.usable, v.needs_mending, v.status is Status.NOT_PROBED, True].index(True)

    lacking = [v for v in surveyed.verdicts if v.builtin and v.status is Status.NO_DEVICE and v is not marked]
    idle = [v for v in lacking if not (v.broken or v.hint)]
    rows, missing = messages.folded([v for v in surveyed.verdicts if v not in idle])
    rows.sort(key=place)  # stable: the order of rank within each
    parts = [page.table(_TITLES, [_row(v, marked, rows) for v in rows]), page.paragraph()] if rows else []
    if missing:
        parts += [page.paragraph((f"{messages.uninstalled(missing).capitalize()}.", "dim")), page.paragraph()]
    return parts


def _all(surveyed: Survey, marked: Verdict | None) -> list[page.Part]:
    """List what the declarations say as well, in the order of rank."""
    rows = []
    for v in surveyed.verdicts:
        rank = str(v.priority) if v.device_type else "-"
        declared = (v.provenance.version, v.provenance.distribution, rank, ", ".join(v.vendor_import) or "-")
        name, *others = _row(v, marked, surveyed.verdicts)
        rows.append([name, *((one_line(each), "") for each in declared), *others])
    return [page.table(_ALL_TITLES, rows), page.paragraph()]


def _row(v: Verdict, marked: Verdict | None, rows: Iterable[Verdict]) -> list[page.Cell]:
    """Name among the `rows`, status, the reason or else how many devices and what they are, next step."""
    sign = "*" if marked is not None and v.is_about(marked) else " "
    devices = [page.count(v.devices, "device")] if v.devices else []
    usable = ": ".join(filter(None, [*devices, one_line(v.description)]))
    return [
        (f"{sign} {one_line(v.label(rows))}", "bold"),
        (v.status.words, page.style(v)),
        ("; ".join(filter(None, [v.reason, usable if v.usable else ""])), ""),
        (f"hint: {v.hint}" if v.hint else "", "dim"),
    ]


def _notes(found: Survey, marked: Verdict | None, settings: Settings, *, everything: bool) -> list[page.Cell]:
    """Name the choice, what is missing, devices without a plugin, and the commands that show more."""
    selection = found.choice.selection if found.choice is not None else None
    notes: list[page.Cell] = []
    has_torch = torch_build() is not None
    if has_torch or settings.pins:
        notes.append(_choice(found, marked, settings))
    if not has_torch:
        install = command_with_its_package("accel setup")
        notes.append((f"torch is not installed, so no backend can be used: {install}", "yellow"))
    notes += [(one_line(line), "yellow") for line in (selection.notes if selection else ())]
    if not everything:
        notes.append(("`accel why NAME` says all of one backend, `accel list --all` of each.", "dim"))
    notes += [(line, "yellow") for line in (*found.missing_plugins, *remarks(found.verdicts))]
    notes += [(one_line(line), "yellow") for line in (selection.autoload if selection else ())]
    return notes


def _choice(surveyed: Survey, marked: Verdict | None, settings: Settings) -> page.Cell:
    """Name the choice, in one line."""
    choice = surveyed.choice
    more = "`accel why` says more."
    if settings.pins:
        if marked is None:
            return f"{settings.asked} names no backend that could be chosen; {more}", "yellow"
        if choice is not None and choice.error is not None:
            return f"* pinned by {settings.asked}, which cannot be honoured; {more}", "yellow"
        if choice is not None and not marked.usable:
            more = f"a program gets it, with the verdict {marked.status.words!r}; {more}"
        return f"* {'pinned' if len(settings.pins) == 1 else 'preferred'} by {settings.asked}; {more}", ""
    if choice is None:
        return "Not probed, so which one would be chosen is not known: `accel list` probes.", "dim"
    if choice.selection.is_unknown:
        return choice.selection.problem, "yellow"
    if choice.candidate is not None:
        return f"* {choice.candidate.name} would be chosen: {choice.selection.how.words}. {more}", ""
    return f"Nothing would be chosen: {choice.selection.problem.partition(chr(10))[0]} {more}", "yellow"
