"""`accel why`: the choice in words, or one backend in detail."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import click

from accel_core.cli import page, remarks
from accel_core.cli.output import answering, as_json, backend_name, probe_timeout, read_settings, status_of
from accel_core.detection import Candidate, How, Selection, Status, Verdict, messages
from accel_core.detection.discovery import find_candidates
from accel_core.detection.probe import Prober
from accel_core.detection.select import Survey, loader, select, survey
from accel_core.errors import BackendNotFoundError
from accel_core.settings import Pin, Settings
from accel_core.text import one_line


@click.command("why")
@backend_name
@probe_timeout
@as_json
def command(name: Pin | None, *, timeout: float | None, as_json: bool) -> None:
    """Say what would be chosen and why each other is not.

    With NAME: whether that backend is usable, why, and what ranks above it. The exit status is 0 when
    something can be chosen, or NAME is usable, 1 when not, and 2 when nothing has the name.
    """
    with answering(as_json=as_json) as output:
        settings = read_settings(timeout)
        document, parts, status = _of_choice(settings) if name is None else _of_backend(name, settings)
        if as_json:
            output.write_json(document)
        else:
            output.write_page(parts)
    click.get_current_context().exit(status)


# --- the whole choice ----------------------------------------------------------------------------------


def _of_choice(settings: Settings) -> tuple[dict[str, Any], list[page.Part], int]:
    """The record of the choice: the document, the page, and the exit status."""
    choice = select(settings, isolated=True)
    selection = choice.selection
    document = {**selection.to_dict(), "verdicts": [page.described(v) for v in selection.verdicts]}
    return document, _choice_page(selection), 0 if selection.chosen is not None else status_of(choice.error)


def _choice_page(selection: Selection) -> list[page.Part]:
    headline = _headline(selection)
    notes = [(one_line(line), "yellow") for line in selection.notes]
    parts = [page.paragraph(*headline), *map(page.paragraph, notes)]
    if others := _others(selection, headline[-1][0]):
        rows, rest = messages.folded(others)
        bullets = [_in_words(v, rows) for v in rows]
        if rest:
            bullets += [[(f"{messages.uninstalled(rest).capitalize()} (`accel why NAME` says how)", "dim")]]
        heading = "Why not the others" if selection.chosen else "What was considered"
        parts += [page.heading(heading), page.bullets(bullets)]
    ranked = selection.how in (How.RANKED, How.FALLBACK)  # else not all that claim a package are here
    unclaimed = (*selection.missing_plugins, *(remarks(selection.verdicts) if ranked else ()))
    parts += _listed("Devices without a plugin", unclaimed) + _listed(page.AUTOLOAD, selection.autoload)
    if selection.environ:
        facts = [(name, repr(value)) for name, value in selection.environ.items()]
        parts += [page.heading("Environment"), page.facts(facts)]
    return parts


def _listed(heading: str, lines: Sequence[str]) -> list[page.Part]:
    bullets = [[(one_line(line), "")] for line in lines]
    return [page.heading(heading), page.bullets(bullets)] if bullets else []


def _headline(selection: Selection) -> list[page.Cell]:
    if selection.chosen:
        how = f" ({selection.provenance}) would be chosen: {selection.how.words}."
        return [(selection.chosen, "bold green"), (how, "")]
    # Of a long problem the first line says what, and the verdicts below say the rest.
    problem = one_line(selection.problem.partition("\n")[0])
    if selection.is_unknown:
        return [(problem, "yellow")]
    return [("Nothing can be chosen. ", "bold red"), (problem, "")]


def _others(selection: Selection, headline: str) -> list[Verdict]:
    """The verdicts that are not in the headline: neither the chosen one nor the one that it failed for."""
    if selection.chosen:
        return [v for v in selection.verdicts if v.name != selection.chosen or not v.usable]
    return [v for v in selection.verdicts if v.usable or one_line(v.reason) not in headline]


def _in_words(v: Verdict, rows: Iterable[Verdict]) -> list[page.Cell]:
    """One backend's verdict among the `rows`, as a running page."""
    about = [v.kind(rows)] if v.kind(rows) else []
    # A plugin that nobody loaded has told no priority.
    about += [str(v.provenance)] if v.provenance.distribution else []
    about += [f"priority {v.priority}"] if v.device_type else []
    hint = f"\nhint: {v.hint}" if v.hint else ""
    return [*_status(about, v), (f": {v.reason}" if v.reason else "", ""), (hint, "dim")]


def _status(about: Iterable[str], v: Verdict) -> list[page.Cell]:
    """Its name, what is told `about` it in brackets, and its status."""
    source = ", ".join(about)
    return [
        (one_line(v.name), "bold"),
        (f" ({one_line(source)}): " if source else ": ", "dim"),
        (v.status.words, page.style(v)),
    ]


# --- one backend ---------------------------------------------------------------------------------------


def _of_backend(pin: Pin, settings: Settings) -> tuple[dict[str, Any], list[page.Part], int]:
    """The answer for the backend that `pin` means, or for the several that claim the name.

    Raises `BackendNotFoundError` when there is none.
    """
    surveyed = survey(settings)
    meant = [v for v in surveyed.verdicts if pin.matches(v.name, v.provenance.distribution)]
    if not meant:
        meant = _of_type(pin, surveyed, settings)
    if not meant:
        raise BackendNotFoundError(messages.not_found(f"accel why {pin}", pin))
    standings = [_standing(v, surveyed, settings) for v in meant]
    autoload = surveyed.choice.selection.autoload if surveyed.choice else ()
    backends = [{**page.described(verdict), **standing} for verdict, standing in standings]

    parts: list[page.Part] = []
    shown = messages.relevant([verdict for verdict, _ in standings])
    for verdict, standing in standings:
        if verdict not in shown:
            continue
        alike = [s for v, s in standings if v is not verdict and v.provenance == verdict.provenance]
        parts += [*([page.paragraph()] if parts else []), *_backend_page(verdict, standing, alike)]
    parts += _listed(page.AUTOLOAD, autoload)
    status = 0 if any(verdict.usable for verdict, _ in standings) else 1
    return {"name": str(pin), "backends": backends, "autoload": list(autoload)}, parts, status


def _of_type(pin: Pin, surveyed: Survey, settings: Settings) -> list[Verdict]:
    """The verdicts on what brings torch's device type `pin.name`, which no plugin declares."""
    load = loader(settings, isolated=True)
    judge = Prober(settings, isolated=True, autoload=False)
    return [judge.probe(c, surveyed.candidates) for c in find_candidates(pin, settings, load)]


def _standing(verdict: Verdict, surveyed: Survey, settings: Settings) -> tuple[Verdict, dict[str, Any]]:
    """The verdict, and its place among all as JSON can hold it: its rank, and what the choice makes of it."""
    choice = surveyed.choice
    assert choice is not None
    above = list(takewhile(lambda v: not v.is_about(verdict), surveyed.verdicts))
    # A pin needs no device: what was pinned has the verdict that it has as a pin.
    pinned = choice.selection.verdicts if settings.pins else ()
    verdict = next((v for v in pinned if v.is_about(verdict)), verdict)
    chosen, unknown = choice.candidate, choice.selection.is_unknown
    return verdict, {
        "usable": verdict.usable,
        "chosen": chosen is not None and verdict.is_about(chosen),
        "standing": "What would be chosen is not known." if unknown else _sentence(verdict, chosen, settings),
        "rank": len(above) + 1,
        "of": len(surveyed.verdicts),
        "outranked_by": [
            {"name": v.name, "distribution": v.provenance.distribution, "status": v.status.value}
            for v in above
        ],
    }


def _sentence(verdict: Verdict, chosen: Candidate | None, settings: Settings) -> str:
    by = f" by {settings.asked}" if settings.pins else ""
    if chosen is None:
        return f"Nothing would be chosen{by}: `accel why` says why."
    if verdict.is_about(chosen):
        return f"It would be chosen{by}."
    too = f"{chosen.name} is usable too and ranks above it, so " if verdict.usable and not by else ""
    return f"{too}{chosen.name} would be chosen{by}."


def _backend_page(v: Verdict, standing: dict[str, Any], alike: list[dict[str, Any]]) -> list[page.Part]:
    """Its page; `alike`: the standings of what one plugin declares under the same name, as AMD's cuda."""
    about = [*([v.hardware] if alike and v.hardware else []), str(v.provenance)]
    place = f"{standing['rank']} of {standing['of']}, with priority {v.priority}"
    above = (f"{other['name']} ({Status(other['status']).words})" for other in standing["outranked_by"])
    packages = (f"{package['distribution']} {package['version']}" for package in page.vendor_packages(v))
    source = v.provenance  # a plugin that is named as its backend is shown by what it names
    entry_point = f"{source.entry_point} = " if source.entry_point.lower() != v.name else ""
    facts = {
        "reason": v.reason,
        "hint": "" if any(other["chosen"] for other in alike) else v.hint,
        "cause": v.cause if one_line(v.cause) not in v.reason else "",
        "raised by": v.where,
        "devices": "" if v.devices is None else str(v.devices),
        "hardware": v.evidence,
        "rank": place if v.device_type else "",
        "above it": ", ".join(above) if v.device_type else "",
        "what it is": v.description,
        "device type": v.device_type,
        "vendor import": ", ".join(v.vendor_import),
        "installed": ", ".join(packages),
        "entry point": f"{entry_point}{source.value}" if source.value else "",
        "read on": v.url,
        "probed in": f"{v.ms:.1f} ms" if v.ms else "",
    }
    return [
        page.paragraph(*_status(about, v), (f". {standing['standing']}", "")),
        page.facts([(name, one_line(value)) for name, value in facts.items()]),
    ]
