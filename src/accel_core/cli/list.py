"""`accel list`: every backend that is installed or built in, and whether it can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from accel_core.cli import page, remarks
from accel_core.cli.output import answering, as_json, probe_timeout, read_settings
from accel_core.explain import messages
from accel_core.explain.autoload import with_autoload_conflicts
from accel_core.explain.messages import Row
from accel_core.hardware.vendors import command_with_its_package
from accel_core.settings import Settings
from accel_core.survey import Survey, survey
from accel_core.text import one_line
from accel_core.torch_import import torch_build
from accel_core.verdict import Selection, Status, Verdict

_TITLES = ("  BACKEND", "STATUS", "DEVICES, OR WHY NOT")
_ALL_TITLES = (
    "  NAME",
    "VERSION",
    "DISTRIBUTION",
    "PRIORITY",
    "VENDOR MODULE",
    "STATUS",
    "REASON",
)


def _reject_names(
    ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]
) -> None:
    if names:
        message = (
            "accel list does not accept a name. For one backend, run: "
            f"accel why {names[0]}"
        )
        raise click.UsageError(message, ctx)


@click.command("list")
@click.argument(
    "names", nargs=-1, metavar="", expose_value=False, callback=_reject_names
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show all details of each backend, in order of rank.",
)
@click.option(
    "--no-probe",
    is_flag=True,
    help="Show only what is known without importing torch or a vendor's package.",
)
@probe_timeout
@as_json
def command(
    *, everything: bool, no_probe: bool, timeout: float | None, as_json: bool
) -> None:
    """List the backends, and show why some of them are not usable.

    Each backend is probed in a separate process, and all backends at the same time. A
    probe counts the devices; only `accel doctor` also computes on them. A star marks
    the backend that is chosen or pinned. The status of a backend does not depend on
    DS_ACCELERATOR. The exit status is 1 if the choice is unknown, for example because a
    backend did not respond in time.
    """
    with answering(as_json=as_json) as output:
        settings = read_settings(timeout)
        surveyed = survey(settings, probing=not no_probe)
        if surveyed.selection is not None:
            with_conflicts = with_autoload_conflicts(surveyed.selection, settings)
            surveyed = replace(surveyed, selection=with_conflicts)
        marked = _verdict_with_star(surveyed)
        if as_json:
            output.write_json(_document(surveyed, marked))
        else:
            if everything:
                parts = _full_table(surveyed, marked)
            else:
                parts = _short_table(surveyed, marked)
            notes = _notes(surveyed, marked, settings, everything=everything)
            output.write_page([*parts, *map(page.paragraph, notes)])
    selection = surveyed.selection
    is_unknown = selection is not None and selection.is_unknown
    click.get_current_context().exit(1 if is_unknown else 0)


def _verdict_with_star(surveyed: Survey) -> Verdict | None:
    """Return the verdict to mark with a star: on the chosen backend, or otherwise on
    the pinned one.

    The result is `None` if several distributions match the pin.
    """
    chosen = surveyed.selection.chosen if surveyed.selection else None
    candidates = (chosen,) if chosen else surveyed.pinned
    distributions = {verdict.distribution for verdict in candidates}
    if len(distributions) != 1:
        return None
    for verdict in surveyed.verdicts:
        if verdict.is_about(candidates[0]):
            return verdict
    return None


def _document(surveyed: Survey, marked: Verdict | None) -> dict[str, object]:
    build, selection = torch_build(), surveyed.selection
    backends = []
    for verdict in surveyed.verdicts:
        described = page.described(verdict)
        backends.append({**described, "marked": verdict is marked})
    return {
        "torch": build.version if build else None,
        "probed": selection is not None,
        "chosen": selection.name if selection else None,
        "how": selection.how.value if selection and marked else None,
        "problem": selection.problem if selection else "",
        "missing_plugins": list(surveyed.missing_plugins),
        "autoload": list(selection.autoload) if selection else [],
        "backends": backends,
    }


# --- The tables -------------------------------------------------------------------------


def _short_table(surveyed: Survey, marked: Verdict | None) -> list[page.Part]:
    """Return the default table of backends, with the most important ones first.

    The groups are: chosen, usable, in need of attention, not probed, and all others.
    Within each group, backends are sorted by rank. A built-in backend without a device
    and without a hint is left out.
    """
    shown = [v for v in surveyed.verdicts if v is marked or not _is_left_out(v)]
    rows, uninstalled = messages.fold_rows(shown)
    rows.sort(key=lambda row: _sort_group(row.verdict, marked))
    empty_line = page.paragraph()
    parts: list[page.Part] = []
    if rows:
        verdicts = [row.verdict for row in rows]
        cells = [_cells(row, marked, verdicts) for row in rows]
        parts += [page.table(_TITLES, cells), empty_line]
    if uninstalled:
        text = f"{messages.uninstalled_clause(uninstalled).capitalize()}."
        parts += [page.paragraph((text, "dim")), empty_line]
    return parts


def _is_left_out(verdict: Verdict) -> bool:
    """Return whether the backend is built in, has no device and needs no next step."""
    if not verdict.builtin or verdict.status is not Status.NO_DEVICE:
        return False
    return verdict.package_failure is None and not verdict.hint


def _sort_group(verdict: Verdict, marked: Verdict | None) -> int:
    """Return the number of the verdict's group in the table, counting from 0."""
    is_chosen_or_pinned = marked is not None and verdict.is_about(marked)
    if is_chosen_or_pinned:
        return 0
    if verdict.usable:
        return 1
    if verdict.needs_attention:
        return 2
    if verdict.status is Status.NOT_PROBED:
        return 3
    return 4


def _full_table(surveyed: Survey, marked: Verdict | None) -> list[page.Part]:
    """Return the table of all backends in rank order, with details from their declarations."""
    rows = []
    for verdict in surveyed.verdicts:
        row = Row(verdict, verdict.reason)
        name_cell, *status_cells = _cells(row, marked, surveyed.verdicts)
        declared = (
            verdict.provenance.version,
            verdict.provenance.distribution,
            str(verdict.priority) if verdict.backend else "-",
            ", ".join(verdict.vendor_import) or "-",
        )
        declared_cells = [(one_line(text), "") for text in declared]
        rows.append([name_cell, *declared_cells, *status_cells])
    return [page.table(_ALL_TITLES, rows), page.paragraph()]


def _cells(
    row: Row, marked: Verdict | None, others: Sequence[Verdict]
) -> list[page.Cell]:
    """Return the cells of one backend's table row: name, status, reason or number of
    devices, next step.
    """
    verdict = row.verdict
    is_marked = marked is not None and verdict.is_about(marked)
    star = "*" if is_marked else " "
    details = [row.reason]
    if verdict.usable:
        details.append(_devices_and_description(verdict))
    details = [detail for detail in details if detail]
    next_step = f"next step: {verdict.hint}" if verdict.hint else ""
    return [
        (f"{star} {one_line(verdict.label(others))}", "bold"),
        (verdict.status.label, page.style(verdict)),
        ("; ".join(details), ""),
        (next_step, "dim"),
    ]


def _devices_and_description(verdict: Verdict) -> str:
    """Return a text such as `"2 devices counted: NVIDIA GPUs"`, without what is unknown."""
    description = one_line(verdict.description)
    if not verdict.devices:
        return description
    counted = f"{page.count(verdict.devices, 'device')} counted"
    if not description:
        return counted
    return f"{counted}: {description}"


# --- The lines below the table ----------------------------------------------------------

_DETAILS = "Details: `accel why`."


def _notes(
    surveyed: Survey,
    marked: Verdict | None,
    settings: Settings,
    *,
    everything: bool,
) -> list[page.Cell]:
    """Return the lines below the table of backends: the choice, what is missing, and
    further commands.
    """
    selection = surveyed.selection
    has_torch = torch_build() is not None
    notes: list[page.Cell] = []
    if has_torch or settings.pins:
        notes.append(_choice_note(selection, marked, settings))
    if not has_torch:
        install = command_with_its_package("accel setup")
        text = (
            f"torch is not installed, so no backend can be used. Next step: {install}"
        )
        notes.append((text, "yellow"))
    if selection is not None:
        for note in selection.notes:
            notes.append((one_line(str(note)), "yellow"))
    if not everything:
        further_commands = "`accel why NAME` explains one backend. `accel list --all` shows all details."
        notes.append((further_commands, "dim"))
    for line in (*surveyed.missing_plugins, *remarks(surveyed.verdicts)):
        notes.append((line, "yellow"))
    if selection is not None:
        for line in selection.autoload:
            notes.append((one_line(line), "yellow"))
    return notes


def _choice_note(
    selection: Selection | None, marked: Verdict | None, settings: Settings
) -> page.Cell:
    """Return the line that describes which backend is chosen."""
    if settings.pins:
        return _pinned_choice_note(selection, marked, settings)
    if selection is None:
        text = (
            "The backends were not probed, so the choice is unknown. To probe them, run "
            "`accel list`."
        )
        return text, "dim"
    if selection.is_unknown:
        return selection.problem, "yellow"
    if selection.chosen is not None:
        chosen = f"* {selection.name} would be used ({selection.how.label})."
        return f"{chosen} {_DETAILS}", ""
    return (
        f"No backend would be chosen: {selection.problem_summary} {_DETAILS}",
        "yellow",
    )


def _pinned_choice_note(
    selection: Selection | None, marked: Verdict | None, settings: Settings
) -> page.Cell:
    """Return the line on the backend that the setting pins."""
    request = settings.request
    if marked is None:
        text = f"{request} matches no backend that can be chosen. {_DETAILS}"
        return text, "yellow"
    if selection is not None and selection.error is not None:
        text = f"* The backend that {request} pins cannot be used. {_DETAILS}"
        return text, "yellow"
    how = "pinned" if len(settings.pins) == 1 else "preferred"
    text = f"* {how} by {request}."
    if selection is not None and not marked.usable:
        status = marked.status.label
        text += f" Programs use this backend, although its status is {status!r}."
    return f"{text} {_DETAILS}", ""
