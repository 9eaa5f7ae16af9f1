"""`accel why`: the choice in words, or one backend in detail."""

from __future__ import annotations

from typing import Any

import click

from accel_core.cli import options, remarks, text
from accel_core.cli.output import Output, answering, status_of
from accel_core.cli.page import Bullets, Cell, Facts, Heading, Paragraph, Part, paragraph
from accel_core.detection import How, Selection, Status, Verdict
from accel_core.detection.messages import folded, not_found
from accel_core.detection.select import Survey, select, survey
from accel_core.errors import BackendNotFoundError
from accel_core.settings import Pin, Settings


@click.command("why")
@options.backend_name
@options.probe_timeout
@options.as_json
@click.pass_context
def command(ctx: click.Context, name: Pin | None, *, timeout: float | None, as_json: bool) -> None:
    """Say what would be chosen and why each other is not.

    With NAME: whether that backend is usable, why, and what ranks above it. The exit status is 0 when
    something can be chosen, or NAME is usable, 1 when not, and 2 when nothing has the name.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        if name is None:
            status = _explain_choice(settings, output, as_json=as_json)
        else:
            status = _explain_backend(name, settings, output, as_json=as_json)
    ctx.exit(status)


# --- the whole choice ----------------------------------------------------------------------------------


def _explain_choice(settings: Settings, output: Output, *, as_json: bool) -> int:
    """Write the record of the choice; the exit status."""
    choice = select(settings, isolated=True)
    selection = choice.selection
    if as_json:
        verdicts = [text.described(verdict) for verdict in selection.verdicts]
        output.write_json({**selection.to_dict(), "verdicts": verdicts})
    else:
        output.write_page(_choice_page(selection))
    if selection.chosen is not None:
        return 0
    return status_of(choice.error) if choice.error is not None else 1


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
    parts += _listed("Devices without a plugin", unclaimed) + _listed(text.AUTOLOAD, selection.autoload)
    if selection.environ:
        parts.append(Heading("Environment"))
        parts.append(Facts([(name, repr(value)) for name, value in selection.environ.items()]))
    return parts


def _listed(heading: str, lines: tuple[str, ...]) -> list[Part]:
    bullets = [paragraph((text.clean(line), "")) for line in lines]
    return [Heading(heading), Bullets(bullets)] if bullets else []


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
    source = [text.clean(str(verdict.provenance))] if verdict.provenance.distribution else []
    # A plugin that nobody loaded has told no priority.
    about = ", ".join([*source, *([f"priority {verdict.priority}"] if verdict.device_type else [])])
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


def _explain_backend(pin: Pin, settings: Settings, output: Output, *, as_json: bool) -> int:
    """Write of the backend that `pin` means, or the several that claim the name; the exit status.

    Raises `BackendNotFoundError` when there is none.
    """
    surveyed = survey(settings)
    meant = [v for v in surveyed.verdicts if pin.matches(v.name, v.provenance.distribution)]
    if not meant:
        usable = list(dict.fromkeys(v.name for v in surveyed.verdicts if v.usable and v.name != "generic"))
        raise BackendNotFoundError(not_found(f"accel why {pin}", pin, lambda: usable))
    standings = [_standing(v, surveyed, settings) for v in meant]
    autoload = surveyed.choice.selection.autoload if surveyed.choice else ()
    if as_json:
        backends = [{**text.described(verdict), **standing} for verdict, standing in standings]
        output.write_json({"name": str(pin), "backends": backends, "autoload": list(autoload)})
    else:
        parts: list[Part] = []
        for verdict, standing in standings:
            alike = [s for v, s in standings if v is not verdict and v.provenance == verdict.provenance]
            parts += [Paragraph(), *_backend_page(verdict, standing, alike)]
        output.write_page([*parts[1:], *_listed(text.AUTOLOAD, autoload)])
    return 0 if any(verdict.usable for verdict, _ in standings) else 1


def _standing(verdict: Verdict, surveyed: Survey, settings: Settings) -> tuple[Verdict, dict[str, Any]]:
    """The verdict, and its place among all as JSON can hold it: its rank, and what the choice makes of it."""
    choice = surveyed.choice
    assert choice is not None
    above = surveyed.verdicts[: surveyed.verdicts.index(verdict)]
    candidate = choice.candidate
    chosen = next((v for v in choice.selection.verdicts if candidate and v.is_about(candidate)), None)
    # A pin needs no device: what was pinned has the verdict that it has as a pin.
    pinned = choice.selection.verdicts if settings.pins else ()
    verdict = next((v for v in pinned if v.is_about(verdict)), verdict)
    unknown = choice.selection.is_unknown
    return verdict, {
        "usable": verdict.usable,
        "chosen": chosen is not None and chosen.is_about(verdict),
        "standing": "What would be chosen is not known." if unknown else _sentence(verdict, chosen, settings),
        "rank": len(above) + 1,
        "of": len(surveyed.verdicts),
        "outranked_by": [
            {"name": v.name, "distribution": v.provenance.distribution, "status": v.status.value}
            for v in above
        ],
    }


def _sentence(verdict: Verdict, chosen: Verdict | None, settings: Settings) -> str:
    by = f" by {settings.asked}" if settings.pins else ""
    if chosen is None:
        return f"Nothing would be chosen{by}."
    if chosen.is_about(verdict):
        return f"It would be chosen{by}."
    if verdict.usable and not by:
        return f"{chosen.name} is usable too and ranks above it, so {chosen.name} would be chosen."
    return f"{chosen.name} would be chosen{by}."


def _backend_page(v: Verdict, standing: dict[str, Any], alike: list[dict[str, Any]]) -> list[Part]:
    """Its page; `alike`: the standings of what one plugin declares under the same name, as AMD's cuda."""
    kind = f", {text.clean(v.hardware)}" if alike and v.hardware else ""
    place = f"{standing['rank']} of {standing['of']}, with priority {v.priority}"
    above = (f"{other['name']} ({Status(other['status']).words})" for other in standing["outranked_by"])
    cause = text.clean(v.cause)
    packages = (f"{package['distribution']} {package['version']}" for package in text.vendor_packages(v))
    return [
        paragraph(
            (text.clean(v.name), "bold"),
            (f"{kind} ({text.clean(str(v.provenance))}): ", "dim"),
            (v.status.words, text.style(v)),
            (f". {standing['standing']}", ""),
        ),
        Facts(
            (
                ("reason", text.clean(v.reason)),
                ("hint", "" if any(other["chosen"] for other in alike) else text.clean(v.hint)),
                ("cause", cause if cause not in v.reason else ""),
                ("raised by", text.clean(v.where)),
                ("devices", "" if v.devices is None else str(v.devices)),
                ("hardware", v.evidence),
                ("rank", place if v.device_type else ""),
                ("above it", ", ".join(above) if v.device_type else ""),
                ("what it is", text.clean(v.description)),
                ("device type", v.device_type),
                ("vendor import", ", ".join(v.vendor_import)),
                ("installed", text.clean(", ".join(packages))),
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
