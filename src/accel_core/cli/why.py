"""`accel why`: the choice in words, or one backend in detail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import click

from accel_core.cli import page, remarks
from accel_core.cli.output import (
    answering,
    as_json,
    backend_name,
    probe_timeout,
    read_settings,
    status_of,
)
from accel_core.errors import BackendNotFoundError
from accel_core.explain import messages
from accel_core.explain.autoload import with_autoload
from accel_core.plugins import find_backends
from accel_core.probe import Prober
from accel_core.select import loader, select
from accel_core.settings import Pin, Settings
from accel_core.survey import Survey, survey
from accel_core.text import one_line
from accel_core.verdict import How, Selection, Status, Verdict


@click.command("why")
@backend_name
@probe_timeout
@as_json
def command(name: Pin | None, *, timeout: float | None, as_json: bool) -> None:
    """Say what would be chosen and why each other is not.

    With NAME: whether that backend is usable, why, and what ranks above it. The exit
    status is 0 when something can be chosen, or NAME is usable, 1 when not, and 2 when
    nothing has the name.
    """
    with answering(as_json=as_json) as output:
        settings = read_settings(timeout)
        answer = _of_choice(settings) if name is None else _of_backend(name, settings)
        if as_json:
            output.write_json(answer.document)
        else:
            output.write_page(answer.parts)
    click.get_current_context().exit(answer.exit_status)


@dataclass(frozen=True)
class _Answer:
    """The command's output, as JSON or as a page, and its exit status."""

    document: dict[str, Any]
    parts: list[page.Part]
    exit_status: int


# --- The whole choice -------------------------------------------------------------------


def _of_choice(settings: Settings) -> _Answer:
    """Return the record of the choice."""
    selection = with_autoload(select(settings, isolated=True), settings)
    verdicts = [page.described(verdict) for verdict in selection.verdicts]
    document = {**selection.to_dict(), "verdicts": verdicts}
    status = 0 if selection.error is None else status_of(selection.error)
    return _Answer(document, _choice_page(selection), status)


def _choice_page(selection: Selection) -> list[page.Part]:
    headline = _headline(selection)
    parts = [page.paragraph(*headline)]
    parts.extend(page.paragraph((one_line(line), "yellow")) for line in selection.notes)
    parts += _considered(selection, headline[-1][0])
    unclaimed = list(selection.missing_plugins)
    # Only a ranked choice knows all backends that claim a package.
    if selection.how in (How.RANKED, How.FALLBACK):
        unclaimed += remarks(selection.verdicts)
    parts += _listed("Devices without a plugin", unclaimed)
    parts += _listed(page.AUTOLOAD, selection.autoload)
    if selection.environ:
        facts = [(name, repr(value)) for name, value in selection.environ.items()]
        parts += [page.heading("Environment"), page.facts(facts)]
    return parts


def _headline(selection: Selection) -> list[page.Cell]:
    if selection.chosen is not None:
        how = f" ({selection.provenance}) would be chosen: {selection.how.label}."
        return [(selection.chosen.name, "bold green"), (how, "")]
    # Of a long problem the first line says what; the verdicts below say the rest.
    problem = one_line(selection.problem.partition("\n")[0])
    if selection.is_unknown:
        return [(problem, "yellow")]
    return [("Nothing can be chosen. ", "bold red"), (problem, "")]


def _considered(selection: Selection, headline: str) -> list[page.Part]:
    """List the verdicts that are not in the headline."""
    if selection.chosen is not None:
        heading = "Why not the others"
        others = _not_chosen(selection)
    else:
        heading = "What was considered"
        others = _not_mentioned(selection, headline)
    if not others:
        return []
    rows, uninstalled = messages.folded(others)
    bullets = [_bullet(row, rows) for row in rows]
    if uninstalled:
        text = messages.uninstalled(uninstalled).capitalize()
        bullets.append([(f"{text} (`accel why NAME` says how)", "dim")])
    return [page.heading(heading), page.bullets(bullets)]


def _not_chosen(selection: Selection) -> list[Verdict]:
    """Return the verdicts but that on the chosen backend."""
    others = []
    for verdict in selection.verdicts:
        if verdict.name != selection.name or not verdict.usable:
            others.append(verdict)
    return others


def _not_mentioned(selection: Selection, headline: str) -> list[Verdict]:
    """Return the verdicts whose reason the headline does not give."""
    others = []
    for verdict in selection.verdicts:
        if verdict.usable or one_line(verdict.reason) not in headline:
            others.append(verdict)
    return others


def _listed(heading: str, lines: Sequence[str]) -> list[page.Part]:
    if not lines:
        return []
    bullets = [[(one_line(line), "")] for line in lines]
    return [page.heading(heading), page.bullets(bullets)]


def _bullet(row: messages.Row, rows: Sequence[messages.Row]) -> list[page.Cell]:
    """Return one backend's verdict as running text."""
    verdict = row.verdict
    maker = verdict.maker([other.verdict for other in rows])
    about = [maker] if maker else []
    # A plugin that was not loaded has no priority.
    if verdict.provenance.distribution:
        about.append(str(verdict.provenance))
    if verdict.backend is not None:
        about.append(f"priority {verdict.priority}")
    reason = f": {row.reason}" if row.reason else ""
    hint = f"\nhint: {verdict.hint}" if verdict.hint else ""
    return [*_status(about, verdict), (reason, ""), (hint, "dim")]


def _status(about: Iterable[str], verdict: Verdict) -> list[page.Cell]:
    """Return its name, what is known `about` it in brackets, and its status."""
    source = ", ".join(about)
    return [
        (one_line(verdict.name), "bold"),
        (f" ({one_line(source)}): " if source else ": ", "dim"),
        (verdict.status.label, page.style(verdict)),
    ]


# --- One backend ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Standing:
    """A verdict, and its place among all."""

    verdict: Verdict
    rank: int
    of: int
    is_chosen: bool
    sentence: str
    outranked_by: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for JSON."""
        outranked_by = [
            {
                "name": other.name,
                "distribution": other.distribution,
                "status": other.status.value,
            }
            for other in self.outranked_by
        ]
        return {
            **page.described(self.verdict),
            "usable": self.verdict.usable,
            "chosen": self.is_chosen,
            "standing": self.sentence,
            "rank": self.rank,
            "of": self.of,
            "outranked_by": outranked_by,
        }


def _of_backend(pin: Pin, settings: Settings) -> _Answer:
    """Return the answer for the backends that `pin` means.

    Raises `BackendNotFoundError` if there is none.
    """
    surveyed = _surveyed(settings)
    meant = _verdicts_on(pin, surveyed, settings)
    standings = [_standing(verdict, surveyed, settings) for verdict in meant]
    assert surveyed.selection is not None
    autoload = surveyed.selection.autoload
    parts = _pages_of(standings) + _listed(page.AUTOLOAD, autoload)
    is_usable = any(standing.verdict.usable for standing in standings)
    document = {
        "name": str(pin),
        "backends": [standing.to_dict() for standing in standings],
        "autoload": list(autoload),
    }
    return _Answer(document, parts, 0 if is_usable else 1)


def _verdicts_on(pin: Pin, surveyed: Survey, settings: Settings) -> list[Verdict]:
    """Return the verdicts on the backends that `pin` means: by name, else by torch's
    device type.

    Raises `BackendNotFoundError` if there is none.
    """
    meant = [v for v in surveyed.verdicts if pin.matches(v.name, v.distribution)]
    if not meant:
        meant = _of_type(pin, surveyed, settings)
    if not meant:
        raise BackendNotFoundError(messages.not_found(f"accel why {pin}", pin))
    return meant


def _pages_of(standings: Sequence[_Standing]) -> list[page.Part]:
    """Return the pages of the backends, one after the other, a blank line between."""
    shown = messages.relevant([standing.verdict for standing in standings])
    parts: list[page.Part] = []
    for standing in standings:
        if standing.verdict not in shown:
            continue
        if parts:
            parts.append(page.paragraph())
        parts += _backend_page(standing, standings)
    return parts


def _surveyed(settings: Settings) -> Survey:
    surveyed = survey(settings)
    assert surveyed.selection is not None
    return replace(surveyed, selection=with_autoload(surveyed.selection, settings))


def _of_type(pin: Pin, surveyed: Survey, settings: Settings) -> list[Verdict]:
    """Return the verdicts on what brings torch's device type `pin.name`."""
    prober = Prober(settings, isolated=True)
    meant = find_backends(pin, settings, loader(settings, isolated=True))
    return [prober.probe(verdict, surveyed.verdicts) for verdict in meant]


def _standing(verdict: Verdict, surveyed: Survey, settings: Settings) -> _Standing:
    selection = surveyed.selection
    assert selection is not None
    above = tuple(takewhile(lambda v: not v.is_about(verdict), surveyed.verdicts))
    if settings.pins:
        # A pin needs no device: what was pinned has the verdict that it has as a pin.
        for pinned in selection.verdicts:
            if pinned.is_about(verdict):
                verdict = pinned
                break
    chosen = selection.chosen
    return _Standing(
        verdict,
        rank=len(above) + 1,
        of=len(surveyed.verdicts),
        is_chosen=chosen is not None and verdict.is_about(chosen),
        sentence=_sentence(verdict, selection, settings),
        outranked_by=above,
    )


def _sentence(verdict: Verdict, selection: Selection, settings: Settings) -> str:
    """Return what the choice makes of the backend."""
    if selection.is_unknown:
        return "What would be chosen is not known."
    chosen = selection.chosen
    by = f" by {settings.asked}" if settings.pins else ""
    if chosen is None:
        return f"Nothing would be chosen{by}: `accel why` says why."
    if verdict.is_about(chosen):
        return f"It would be chosen{by}."
    if verdict.usable and not settings.pins:
        too = f"{chosen.name} is usable too and ranks above it"
        return f"{too}, so {chosen.name} would be chosen."
    return f"{chosen.name} would be chosen{by}."


def _backend_page(
    standing: _Standing, standings: Sequence[_Standing]
) -> list[page.Part]:
    """Return the page of one backend; `standings` has its namesakes too."""
    verdict = standing.verdict
    namesakes = [
        other
        for other in standings
        if other is not standing and other.verdict.provenance == verdict.provenance
    ]
    about = [str(verdict.provenance)]
    if namesakes and verdict.hardware:
        about.insert(0, verdict.hardware)
    facts = _facts(standing)
    if any(namesake.is_chosen for namesake in namesakes):
        facts["hint"] = ""
    return [
        page.paragraph(*_status(about, verdict), (f". {standing.sentence}", "")),
        page.facts([(name, one_line(value)) for name, value in facts.items()]),
    ]


def _facts(standing: _Standing) -> dict[str, str]:
    """Return names and values; empty values are not shown."""
    verdict = standing.verdict
    rank = above = ""
    if verdict.backend is not None:
        place = f"{standing.rank} of {standing.of}"
        rank = f"{place}, with priority {verdict.priority}"
        above = ", ".join(
            f"{other.name} ({other.status.label})" for other in standing.outranked_by
        )
    packages = page.vendor_packages(verdict)
    installed = (f"{each['distribution']} {each['version']}" for each in packages)
    is_repeated = one_line(verdict.cause) in verdict.reason
    return {
        "reason": verdict.reason,
        "hint": verdict.hint,
        "cause": "" if is_repeated else verdict.cause,
        "raised by": verdict.where,
        "devices": "" if verdict.devices is None else str(verdict.devices),
        "hardware": verdict.evidence,
        "rank": rank,
        "above it": above,
        "what it is": verdict.description,
        "device type": _device_type(verdict),
        "vendor import": ", ".join(verdict.vendor_import),
        "installed": ", ".join(installed),
        "entry point": _entry_point(verdict),
        "read on": verdict.url,
        "probed in": f"{verdict.ms:.1f} ms" if verdict.ms else "",
    }


def _device_type(verdict: Verdict) -> str:
    """Return torch's type of the device; empty while torch has not named it."""
    is_placeholder = verdict.builtin and verdict.status is Status.NO_DEVICE
    return "" if is_placeholder else verdict.device_type


def _entry_point(verdict: Verdict) -> str:
    """Return the entry point; its name only if that is not the backend's."""
    source = verdict.provenance
    if not source.value or source.entry_point.lower() == verdict.name:
        return source.value
    return f"{source.entry_point} = {source.value}"
