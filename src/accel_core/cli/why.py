"""`accel why`: show which backend is chosen and why, or one backend in detail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from accel_core.cli import environments, page, remarks
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
from accel_core.explain.autoload import with_autoload_conflicts
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
    """Show which backend is chosen, and why others were skipped.

    With NAME, show whether the backend NAME is usable, why, and which backends have a
    higher priority. The exit status is 0 if a backend can be chosen or, with NAME, if
    NAME is usable. Otherwise it is 1, or 2 if there is no backend NAME.
    """
    with answering(as_json=as_json) as output:
        settings = read_settings(timeout)
        if name is None:
            answer = _answer_on_choice(settings)
        else:
            answer = _answer_on_backend(name, settings)
        if as_json:
            output.write_json(answer.document)
        else:
            output.write_page(answer.parts)
    click.get_current_context().exit(answer.exit_status)


@dataclass(frozen=True)
class _Answer:
    """The output of a command, as JSON or as a page, and its exit status."""

    document: dict[str, Any]
    parts: list[page.Part]
    exit_status: int


# --- The whole choice -------------------------------------------------------------------


def _answer_on_choice(settings: Settings) -> _Answer:
    """Return the page and the JSON document about the choice."""
    selection = with_autoload_conflicts(select(settings, isolated=True), settings)
    verdicts = [page.described(verdict) for verdict in selection.verdicts]
    document = {**selection.to_dict(), "verdicts": verdicts}
    status = 0 if selection.error is None else status_of(selection.error)
    return _Answer(document, _choice_page(selection), status)


def _choice_page(selection: Selection) -> list[page.Part]:
    parts = [page.paragraph(*_headline(selection))]
    for note in selection.notes:
        parts.append(page.paragraph((one_line(str(note)), "yellow")))
    parts += _other_verdicts(selection)
    without_plugin = list(selection.missing_plugins)
    # The remarks are about packages that no backend uses. With pins, the verdicts lack
    # most backends, so a package that one of them uses would be reported too.
    if selection.how in (How.RANKED, How.FALLBACK):
        without_plugin += remarks(selection.verdicts)
    parts += _section("Devices without a plugin", without_plugin)
    parts += _section(page.AUTOLOAD, selection.autoload)
    parts += _section("Environment of Python", environments())
    if selection.environ:
        facts = [(name, repr(value)) for name, value in selection.environ.items()]
        parts += [page.heading("Environment"), page.facts(facts)]
    if selection.chosen is None or selection.how is How.FALLBACK:
        parts += _troubleshooting()
    return parts


def _headline(selection: Selection) -> list[page.Cell]:
    if selection.chosen is not None:
        how = f" ({selection.provenance}) would be used: {selection.how.label}."
        return [(selection.chosen.name, "bold green"), (how, "")]
    # The first line of a long message states the problem. The verdicts below have details.
    problem = one_line(selection.problem_summary)
    if selection.is_unknown:
        return [(problem, "yellow")]
    return [("No backend can be chosen. ", "bold red"), (problem, "")]


def _other_verdicts(selection: Selection) -> list[page.Part]:
    """List the verdicts on the backends that were not chosen."""
    heading = "Skipped" if selection.chosen is not None else "Considered"
    rows, uninstalled = messages.fold_rows(_not_chosen(selection))
    is_pinned = selection.how is How.PINNED
    if selection.chosen is None and is_pinned and len(rows) == 1:
        # The headline states the reason of the only pinned backend.
        return []
    if not rows and not uninstalled:
        return []
    bullets = [_bullet(row, rows) for row in rows]
    if uninstalled:
        text = messages.uninstalled_clause(uninstalled).capitalize()
        text += " (`accel why NAME` shows how to install it)"
        bullets.append([(text, "dim")])
    return [page.heading(heading), page.bullets(bullets)]


def _not_chosen(selection: Selection) -> list[Verdict]:
    """Return all verdicts except the one on the chosen backend."""
    others = []
    for verdict in selection.verdicts:
        is_chosen = verdict.name == selection.name and verdict.usable
        if not is_chosen:
            others.append(verdict)
    return others


def _troubleshooting() -> list[page.Part]:
    """Return the line that refers to the troubleshooting page on devices that are not used."""
    line = (messages.troubleshooting_line(), "dim")
    return [page.paragraph(), page.paragraph(line)]


def _section(heading: str, lines: Sequence[str]) -> list[page.Part]:
    if not lines:
        return []
    bullets = [[(one_line(line), "")] for line in lines]
    return [page.heading(heading), page.bullets(bullets)]


def _bullet(row: messages.Row, rows: Sequence[messages.Row]) -> list[page.Cell]:
    """Return one backend's verdict as a paragraph."""
    verdict = row.verdict
    hardware = verdict.hardware_if_ambiguous([other.verdict for other in rows])
    details = [hardware] if hardware else []
    if verdict.provenance.distribution:
        details.append(str(verdict.provenance))
    # A plugin that was not loaded has no priority.
    if verdict.backend is not None:
        details.append(f"priority {verdict.priority}")
    reason = f": {row.reason}" if row.reason else ""
    hint = f"\nnext step: {verdict.hint}" if verdict.hint else ""
    return [*_name_and_status(verdict, details), (reason, ""), (hint, "dim")]


def _name_and_status(verdict: Verdict, details: Iterable[str]) -> list[page.Cell]:
    """Return three cells: a backend's name, the details in brackets, and its status."""
    text = one_line(", ".join(details))
    brackets = f" ({text})" if text else ""
    return [
        (one_line(verdict.name), "bold"),
        (f"{brackets}: ", "dim"),
        (verdict.status.label, page.style(verdict)),
    ]


# --- One backend ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Standing:
    """A verdict on a backend, with the backend's rank and its role in the choice."""

    verdict: Verdict
    #: The position among all backends, counted from 1.
    rank: int
    #: The number of all backends.
    backend_count: int
    is_chosen: bool
    #: A sentence on whether the backend would be chosen.
    choice_sentence: str
    outranked_by: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the backend's state, its rank, and whether it is chosen, as plain values
        for JSON.
        """
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
            "standing": self.choice_sentence,
            "rank": self.rank,
            "of": self.backend_count,
            "outranked_by": outranked_by,
        }


def _answer_on_backend(pin: Pin, settings: Settings) -> _Answer:
    """Return the page and the JSON document about the backends that `pin` selects.

    Raises `BackendNotFoundError` if there is none.
    """
    surveyed = _survey_with_conflicts(settings)
    matching = _verdicts_for_pin(pin, surveyed, settings)
    standings = [_standing(verdict, surveyed, settings) for verdict in matching]
    assert surveyed.selection is not None
    autoload = surveyed.selection.autoload
    parts = _backend_pages(standings) + _section(page.AUTOLOAD, autoload)
    is_usable = any(standing.verdict.usable for standing in standings)
    if not is_usable:
        parts += _troubleshooting()
    document = {
        "name": str(pin),
        "backends": [standing.to_dict() for standing in standings],
        "autoload": list(autoload),
    }
    return _Answer(document, parts, 0 if is_usable else 1)


def _verdicts_for_pin(pin: Pin, surveyed: Survey, settings: Settings) -> list[Verdict]:
    """Return the verdicts on the backends that `pin` selects by name, or otherwise by
    torch's device type.

    Raises `BackendNotFoundError` if there is none.
    """
    matching = [v for v in surveyed.verdicts if pin.matches(v.name, v.distribution)]
    if not matching:
        matching = _probe_device_type(pin, surveyed, settings)
    if not matching:
        raise BackendNotFoundError(messages.not_found_message(f"accel why {pin}", pin))
    return matching


def _backend_pages(standings: Sequence[_Standing]) -> list[page.Part]:
    """Return the pages of the backends, one after the other, with a blank line between
    them.
    """
    shown = messages.relevant([standing.verdict for standing in standings])
    parts: list[page.Part] = []
    for standing in standings:
        if standing.verdict not in shown:
            continue
        if parts:
            parts.append(page.paragraph())
        parts += _backend_page(standing, standings)
    return parts


def _survey_with_conflicts(settings: Settings) -> Survey:
    surveyed = survey(settings)
    assert surveyed.selection is not None
    return replace(
        surveyed, selection=with_autoload_conflicts(surveyed.selection, settings)
    )


def _probe_device_type(pin: Pin, surveyed: Survey, settings: Settings) -> list[Verdict]:
    """Probe the backends that provide torch's device type `pin.name`."""
    prober = Prober(settings, isolated=True)
    matching = find_backends(pin, settings, loader(settings, isolated=True))
    return [prober.probe(verdict, surveyed.verdicts) for verdict in matching]


def _standing(verdict: Verdict, surveyed: Survey, settings: Settings) -> _Standing:
    selection = surveyed.selection
    assert selection is not None
    higher_ranking: list[Verdict] = []
    for other in surveyed.verdicts:  # in rank order
        if other.is_about(verdict):
            break
        higher_ranking.append(other)
    shown_verdict = verdict
    if settings.pins:
        # A pinned backend is usable without a device, so the verdict of the selection
        # can differ from the verdict without pins.
        for verdict_with_pins in selection.verdicts:
            if verdict_with_pins.is_about(verdict):
                shown_verdict = verdict_with_pins
                break
    chosen = selection.chosen
    return _Standing(
        shown_verdict,
        rank=len(higher_ranking) + 1,
        backend_count=len(surveyed.verdicts),
        is_chosen=chosen is not None and verdict.is_about(chosen),
        choice_sentence=_choice_sentence(shown_verdict, selection, settings),
        outranked_by=tuple(higher_ranking),
    )


def _choice_sentence(verdict: Verdict, selection: Selection, settings: Settings) -> str:
    """Return a sentence on whether the backend would be chosen."""
    if selection.is_unknown:
        return "The choice is unknown."
    chosen = selection.chosen
    by_setting = f" by {settings.request}" if settings.pins else ""
    if chosen is None:
        return (
            f"No backend would be chosen{by_setting}: run `accel why` for the reason."
        )
    if verdict.is_about(chosen):
        return f"It would be chosen{by_setting}."
    if verdict.usable and not settings.pins:
        return (
            f"{chosen.name} would be chosen, because it is usable too and has a higher "
            "priority."
        )
    return f"{chosen.name} would be chosen{by_setting}."


def _backend_page(
    standing: _Standing, standings: Sequence[_Standing]
) -> list[page.Part]:
    """Return the page of one backend. `standings` also contains other backends of the
    same name.
    """
    verdict = standing.verdict
    namesakes = []
    for other in standings:
        is_of_same_plugin = other.verdict.provenance == verdict.provenance
        if other is not standing and is_of_same_plugin:
            namesakes.append(other)
    details = [str(verdict.provenance)]
    if namesakes and verdict.hardware:
        details.insert(0, verdict.hardware)
    facts = _backend_facts(standing)
    if any(namesake.is_chosen for namesake in namesakes):
        facts["next step"] = ""  # Another backend of this name is chosen already.
    headline = _name_and_status(verdict, details)
    return [
        page.paragraph(*headline, (f". {standing.choice_sentence}", "")),
        page.facts([(name, one_line(value)) for name, value in facts.items()]),
    ]


def _backend_facts(standing: _Standing) -> dict[str, str]:
    """Return names and values for the page. Empty values are not shown."""
    verdict = standing.verdict
    rank = higher_priority = ""
    if verdict.backend is not None:
        position = f"{standing.rank} of {standing.backend_count}"
        rank = f"{position}, with priority {verdict.priority}"
        higher = [f"{v.name} ({v.status.label})" for v in standing.outranked_by]
        higher_priority = ", ".join(higher)
    installed = []
    for package in page.vendor_packages(verdict):
        installed.append(f"{package['distribution']} {package['version']}")
    return {
        "reason": verdict.reason,
        "next step": verdict.hint,
        "cause": "" if verdict.words.cause else verdict.cause,
        "raised by": verdict.where,
        "devices": "" if verdict.devices is None else str(verdict.devices),
        "hardware": verdict.evidence,
        "rank": rank,
        "higher priority": higher_priority,
        "description": verdict.description,
        "device type": _device_type(verdict),
        "vendor module": ", ".join(verdict.vendor_import),
        "installed": ", ".join(installed),
        "entry point": _entry_point(verdict),
        "docs": verdict.url,
        "probed in": f"{verdict.ms:.1f} ms" if verdict.ms else "",
    }


def _device_type(verdict: Verdict) -> str:
    """Return the device type in torch, or an empty string if torch has not named the device yet."""
    # The built-in backend `generic` gets its device type only when torch has a device.
    is_placeholder = verdict.builtin and verdict.status is Status.NO_DEVICE
    if is_placeholder:
        return ""
    return verdict.device_type


def _entry_point(verdict: Verdict) -> str:
    """Return the entry point's value, preceded by its name if the name differs from the
    backend's.
    """
    source = verdict.provenance
    is_named_differently = source.entry_point.lower() != verdict.name
    if source.value and is_named_differently:
        return f"{source.entry_point} = {source.value}"
    return source.value
