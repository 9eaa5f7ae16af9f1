"""`accel why`: the choice in words, or one backend in detail."""

from __future__ import annotations

from typing import NamedTuple

import click

from accel_core.cli import options, text
from accel_core.cli.commands import remarks
from accel_core.cli.output import Output, answering
from accel_core.cli.page import Bullets, Cell, Facts, Heading, Paragraph, Part, paragraph
from accel_core.cli.provenance import described, vendor_packages
from accel_core.detection import How, Selection, Verdict
from accel_core.detection.messages import folded, not_found
from accel_core.detection.select import Survey, select, survey
from accel_core.errors import BackendNotFoundError
from accel_core.settings import Pin, Settings

__all__ = ["command"]


@click.command("why")
@options.backend_name
@options.probe_timeout
@options.as_json
@click.pass_context
def command(ctx: click.Context, name: Pin | None, *, timeout: float | None, as_json: bool) -> None:
    """Say what would be chosen and why each other is not.

    With NAME: whether that backend is usable, why, and what ranks above it. The exit status is 0 when
    something can be chosen, or NAME is usable, and 1 when not.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        if name is None:
            usable = _explain_choice(settings, output, as_json=as_json)
        else:
            usable = _explain_backend(name, settings, output, as_json=as_json)
    ctx.exit(0 if usable else 1)


# --- the whole choice ----------------------------------------------------------------------------------


def _explain_choice(settings: Settings, output: Output, *, as_json: bool) -> bool:
    """Write the record of the choice; whether something is chosen."""
    selection = select(settings, isolated=True).selection
    if as_json:
        verdicts = [described(verdict) for verdict in selection.verdicts]
        output.write_json({**selection.to_dict(), "verdicts": verdicts})
    else:
        output.write_page(_choice_page(selection))
    return selection.chosen is not None


def _choice_page(selection: Selection) -> list[Part]:
    headline = _headline(selection)
    notes = [paragraph((text.clean(line), "yellow")) for line in selection.notes]
    parts: list[Part] = [Paragraph(headline), *notes]
    others = _others(selection, headline[-1][0])
    if others:
        parts.append(Heading("Why not the others" if selection.chosen else "What was considered"))
        rows, missing = folded(others)
        bullets = [Paragraph(_in_words(verdict)) for verdict in rows]
        if missing:
            bullets.append(paragraph((f"{text.uninstalled(missing)} (`accel why NAME` says how)", "dim")))
        parts.append(Bullets(bullets))
    ranked = selection.how in (How.RANKED, How.FALLBACK)  # else not all that claim a package are here
    unclaimed = (*selection.missing_plugins, *(remarks(selection.verdicts) if ranked else ()))
    if unclaimed:
        parts.append(Heading("Devices without a plugin"))
        parts.append(Bullets([paragraph((text.clean(line), "")) for line in unclaimed]))
    parts += _autoload(selection.autoload)
    if selection.environ:
        parts.append(Heading("Environment"))
        parts.append(Facts([(name, repr(value)) for name, value in selection.environ.items()]))
    return parts


def _autoload(lines: tuple[str, ...]) -> list[Part]:
    """List what torch's autoload does to a program that imports torch before accel_core."""
    bullets = [paragraph((text.clean(line), "")) for line in lines]
    return [Heading(text.AUTOLOAD), Bullets(bullets)] if bullets else []


def _headline(selection: Selection) -> list[Cell]:
    if selection.chosen:
        how = f" ({selection.provenance}) would be chosen: {selection.how.words}."
        return [(selection.chosen, "bold green"), (how, "")]
    # Of a long problem the first line says what, and the verdicts below say the rest.
    problem = text.clean(selection.problem.partition("\n")[0])
    if selection.is_unknown:
        return [(problem, "yellow")]
    return [("Nothing can be chosen. ", "bold red"), (problem, "")]


def _others(selection: Selection, headline: str) -> list[Verdict]:
    """The verdicts that are not in the headline: neither the chosen one nor the one that it failed for."""
    if selection.chosen:
        return [v for v in selection.verdicts if v.name != selection.chosen or not v.usable]
    return [v for v in selection.verdicts if text.clean(v.reason) not in headline]


def _in_words(verdict: Verdict) -> list[Cell]:
    """One backend's verdict as a running text."""
    source = f"{text.clean(str(verdict.provenance))}, " if verdict.provenance.distribution else ""
    # What nobody loaded has told no priority.
    about = f"{source}priority {verdict.priority}" if verdict.device_type else source.removesuffix(", ")
    cells = [
        (text.clean(verdict.name), "bold"),
        (f" ({about}): " if about else ": ", "dim"),
        (verdict.status.words, text.style(verdict)),
    ]
    if verdict.reason:
        cells.append((f": {text.clean(verdict.reason)}", ""))
    if verdict.hint:
        cells.append((f"\nhint: {text.clean(verdict.hint)}", "dim"))
    return cells


# --- one backend ---------------------------------------------------------------------------------------


class _Standing(NamedTuple):
    """One backend among all: its verdict, its rank, and what the choice makes of it."""

    verdict: Verdict
    #: Its place in the order, from 1, and how many there are.
    rank: int
    total: int
    #: What ranks above it, usable or not.
    above: tuple[Verdict, ...]
    chosen: bool
    #: What the choice makes of it, as a sentence.
    sentence: str

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            **described(self.verdict),
            "usable": self.verdict.usable,
            "chosen": self.chosen,
            "standing": self.sentence,
            "rank": self.rank,
            "of": self.total,
            "outranked_by": [
                {"name": v.name, "distribution": v.provenance.distribution, "status": v.status.value}
                for v in self.above
            ],
        }


def _explain_backend(name: Pin, settings: Settings, output: Output, *, as_json: bool) -> bool:
    """Write of the backend that `name` means, or the several that claim the name; whether one is usable."""
    standings, autoload = _standings(name, settings)
    if as_json:
        backends = [standing.to_dict() for standing in standings]
        output.write_json({"name": str(name), "backends": backends, "autoload": list(autoload)})
    else:
        parts: list[Part] = []
        for standing in standings:
            parts += [*([Paragraph()] if parts else []), *_backend_page(standing)]
        parts += _autoload(autoload)
        output.write_page(parts)
    return any(standing.verdict.usable for standing in standings)


def _standings(pin: Pin, settings: Settings) -> tuple[list[_Standing], tuple[str, ...]]:
    """Every backend that `pin` means, and what torch's autoload spoils.

    Raises `BackendNotFoundError` when there is none.
    """
    surveyed = survey(settings)
    meant = [v for v in surveyed.verdicts if pin.matches(v.name, v.provenance.distribution)]
    if not meant:
        usable = list(dict.fromkeys(v.name for v in surveyed.verdicts if v.usable and v.name != "generic"))
        raise BackendNotFoundError(not_found(f"accel why {pin}", pin, lambda: usable))
    autoload = surveyed.choice.selection.autoload if surveyed.choice else ()
    return [_standing(v, surveyed, settings) for v in meant], autoload


def _standing(verdict: Verdict, surveyed: Survey, settings: Settings) -> _Standing:
    choice = surveyed.choice
    assert choice is not None
    above = surveyed.verdicts[: surveyed.verdicts.index(verdict)]
    candidate = choice.candidate
    chosen = next((v for v in choice.selection.verdicts if candidate and v.is_about(candidate)), None)
    # A pin needs no device: what was pinned has the verdict that it has as a pin.
    pinned = choice.selection.verdicts if settings.pins else ()
    verdict = next((v for v in pinned if v.is_about(verdict)), verdict)
    is_chosen = chosen is not None and chosen.is_about(verdict)
    return _Standing(
        verdict=verdict,
        rank=len(above) + 1,
        total=len(surveyed.verdicts),
        above=above,
        chosen=is_chosen,
        sentence="What would be chosen is not known."
        if choice.selection.is_unknown
        else _sentence(verdict, chosen, settings, is_chosen=is_chosen),
    )


def _sentence(verdict: Verdict, chosen: Verdict | None, settings: Settings, *, is_chosen: bool) -> str:
    by = f" by {settings.asked}" if settings.pins else ""
    if is_chosen:
        return f"It would be chosen{by}."
    if chosen is None:
        return f"Nothing would be chosen{by}."
    if verdict.usable and not by:
        return f"{chosen.name} is usable too and ranks above it, so {chosen.name} would be chosen."
    return f"{chosen.name} would be chosen{by}."


def _backend_page(standing: _Standing) -> list[Part]:
    v = standing.verdict
    place = f"{standing.rank} of {standing.total}, with priority {v.priority}" if v.device_type else ""
    above = ", ".join(f"{other.name} ({other.status.words})" for other in standing.above if v.device_type)
    cause = text.clean(v.cause)
    return [
        paragraph(
            (text.clean(v.name), "bold"),
            (f" ({text.clean(str(v.provenance))}): ", "dim"),
            (v.status.words, text.style(v)),
            (f". {standing.sentence}", ""),
        ),
        Facts(
            (
                ("reason", text.clean(v.reason)),
                ("hint", text.clean(v.hint)),
                ("cause", cause if cause not in v.reason else ""),
                ("raised by", text.clean(v.where)),
                ("devices", "" if v.devices is None else str(v.devices)),
                ("hardware", v.evidence),
                ("rank", place),
                ("above it", above),
                ("what it is", text.clean(v.description)),
                ("device type", v.device_type),
                ("vendor import", ", ".join(v.vendor_import)),
                ("installed", text.clean(", ".join(vendor_packages(v)))),
                ("entry point", _entry_point(v)),
                ("read on", text.clean(v.url)),
                ("probed in", f"{v.ms:.1f} ms" if v.ms else ""),
            )
        ),
    ]


def _entry_point(verdict: Verdict) -> str:
    """As metadata has it; of a plugin that is named as its backend, what it names."""
    source = verdict.provenance
    name = f"{source.entry_point} = " if source.entry_point.lower() != verdict.name else ""
    return text.clean(f"{name}{source.value}") if source.value else ""
