"""`accel why`: the choice in words, or one backend in detail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from accel_core.cli import options
from accel_core.cli.output import Output, answering

if TYPE_CHECKING:
    from rich.console import RenderableType

    from accel_core.cli.standing import Standing
    from accel_core.detection.records import Selection, Verdict
    from accel_core.settings import Pin, Settings

__all__ = ["why"]


@click.command()
@options.backend_name
@options.probe_timeout
@options.as_json
@click.pass_context
def why(ctx: click.Context, name: Pin | None, *, timeout: float | None, as_json: bool) -> None:
    """Say what would be chosen and why each other is not.

    With NAME: whether that backend is usable, why, and what ranks above it. The exit status is 0 when
    something can be chosen, or NAME is usable, and 1 when not.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        answer = _of_one if name else _of_all
        good = answer(name, settings, output, as_json=as_json)
    ctx.exit(0 if good else 1)


# --- the whole choice ----------------------------------------------------------------------------------


def _of_all(_: Pin | None, settings: Settings, output: Output, *, as_json: bool) -> bool:
    """Answer for the whole choice; whether something is chosen."""
    from accel_core.detection.choose import choose

    selection = choose(settings, os.environ, isolated=True).selection
    if as_json:
        output.write_json(selection.to_dict())
    else:
        from accel_core.cli import render

        output.write(render.to_text(_choice(selection), output))
    return selection.chosen is not None


def _choice(selection: Selection) -> list[RenderableType]:
    from accel_core.cli import render

    headline = _headline(selection)
    parts: list[RenderableType] = [render.paragraph(*headline)]
    rest = _untold(selection, headline[-1][0])
    if rest:
        parts.append(render.heading("Why not the others" if selection.chosen else "What was considered"))
        parts.append(render.bullets(("-", render.paragraph(*_said(v))) for v in rest))
    if selection.missing_plugins:
        parts.append(render.heading("Hardware without its plugin"))
        parts.append(
            render.bullets(("-", render.paragraph((line, ""))) for line in selection.missing_plugins)
        )
    if selection.environ:
        parts.append(render.heading("Environment"))
        parts.append(render.facts((name, repr(value)) for name, value in selection.environ.items()))
    return parts


def _headline(selection: Selection) -> list[tuple[str, str]]:
    from accel_core.cli import words

    if selection.chosen:
        how = f" ({selection.provenance}) would be chosen: {selection.how.words}."
        return [(selection.chosen, "bold green"), (how, "")]
    # Of a long problem the first line says what, and the verdicts below say the rest.
    return [("Nothing can be chosen. ", "bold red"), (words.clean(selection.problem.partition("\n")[0]), "")]


def _untold(selection: Selection, told: str) -> list[Verdict]:
    """The verdicts that the headline does not tell: not the chosen one, and not the one it failed for."""
    from accel_core.cli import words

    if selection.chosen:
        return [v for v in selection.verdicts if v.name != selection.chosen or not v.usable]
    return [v for v in selection.verdicts if words.clean(v.reason) not in told]


def _said(verdict: Verdict) -> list[tuple[str, str]]:
    """One backend's verdict as a running text."""
    from accel_core.cli import words

    source = f"{words.clean(str(verdict.provenance))}, " if verdict.provenance.distribution else ""
    said = [(words.clean(verdict.name), "bold"), (f" ({source}priority {verdict.priority}): ", "dim")]
    said.append((words.status(verdict), words.style(verdict)))
    if verdict.reason:
        said.append((f": {words.clean(verdict.reason)}", ""))
    if verdict.hint:
        said.append((f"\nhint: {words.clean(verdict.hint)}", "dim"))
    return said


# --- one backend ---------------------------------------------------------------------------------------


def _of_one(name: Pin | None, settings: Settings, output: Output, *, as_json: bool) -> bool:
    """Answer for the backend that `name` means, or the several that claim the name; whether one is usable."""
    from accel_core.cli.standing import standings

    assert name is not None
    meant = standings(name, settings)
    if as_json:
        output.write_json({"name": str(name), "cases": [standing.to_dict() for standing in meant]})
    else:
        from accel_core.cli import render

        pages = [_details(standing) for standing in meant]
        output.write("\n\n".join(render.to_text(page, output) for page in pages))
    return any(standing.verdict.usable for standing in meant)


def _details(standing: Standing) -> list[RenderableType]:
    from accel_core.cli import render, words

    v = standing.verdict
    place = f"{standing.rank} of {standing.total}, with priority {v.priority}"
    above = ", ".join(f"{other.name} ({words.status(other)})" for other in standing.above)
    cause = words.clean(v.cause)
    return [
        render.paragraph(
            (words.clean(v.name), "bold"),
            (f" ({words.clean(str(v.provenance))}): ", "dim"),
            (words.status(v), words.style(v)),
            (f". {standing.sentence}", ""),
        ),
        render.facts(
            (
                ("reason", words.clean(v.reason)),
                ("hint", words.clean(v.hint)),
                ("cause", cause if cause not in v.reason else ""),
                ("devices", "" if v.devices is None else str(v.devices)),
                ("hardware", v.evidence),
                ("rank", place),
                ("above it", above),
                ("what it is", words.clean(v.description)),
                ("device type", v.device_type),
                ("vendor import", ", ".join(v.vendor_import)),
                ("entry point", words.clean(v.provenance.value)),
                ("read on", words.clean(v.url)),
                ("probed in", f"{v.ms:.1f} ms" if v.ms else ""),
            )
        ),
    ]
