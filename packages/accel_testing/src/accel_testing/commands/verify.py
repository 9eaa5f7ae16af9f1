"""`accel verify`: whether a backend keeps what the interface promises."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from accel_core import Verdict
from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.errors import (
    BackendNotFoundError,
    IntegrationMissingError,
    SettingError,
)
from accel_core.explain import messages
from accel_core.hardware import vendors
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends
from accel_core.select import select
from accel_core.settings import Pin, Settings
from accel_core.text import one_line
from accel_testing.conformance import document, simulated
from accel_testing.conformance.catalogue import Check, checks
from accel_testing.conformance.expected import NOTHING, Expected, read
from accel_testing.conformance.groups import LEVELS, USUAL_LEVEL
from accel_testing.conformance.records import Card, Outcome, Result
from accel_testing.conformance.run import run
from accel_tools.cli.progress import Progress

__all__ = ["command"]

_RESULTS = Path("results")
_COLUMNS = ("LEVEL", "PASSED", "FAILED", "NOT CLAIMED", "")


def _file(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> tuple[Path, Expected] | None:
    if value is None:
        return None
    try:
        return value, read(value)
    except SettingError as error:
        raise click.BadParameter(one_line(str(error))) from None


def _checks(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    known = [check.name for check in checks()]
    unknown = [name for name in value if name not in known]
    if unknown:
        raise click.BadParameter(
            f"{', '.join(unknown)}: no such check; `accel verify --list` names them."
        )
    return value


def _folder(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> Path | None:
    """Refuse a file whose folder is missing, before checks run for minutes."""
    if value is not None and not value.absolute().parent.is_dir():
        folder = shlex.quote(str(value.parent))
        raise click.BadParameter(
            f"there is no folder {folder}. Make it first: mkdir -p {folder}"
        )
    return value


def _writes(form: str, name: str) -> Callable[[Any], Any]:
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    told = f"Also write the card as {name}."
    return click.option(
        f"--{form}", type=kind, callback=_folder, metavar="FILE", help=told
    )


@click.command("verify")
@options.backend_name
@click.option(
    "--level",
    type=click.IntRange(min(LEVELS), max(LEVELS)),
    show_default=f"{USUAL_LEVEL}, or that of --check",
    metavar="N",
    help="; ".join(f"{level}: {what}" for level, what in LEVELS.items()) + ".",
)
@click.option(
    "--check",
    "only",
    multiple=True,
    callback=_checks,
    metavar="CHECK",
    help="Only this check; repeatable.",
)
@click.option(
    "--expected",
    type=click.Path(path_type=Path),
    callback=_file,
    metavar="FILE",
    help="TOML with [skip] and [fails]: checks and reasons.",
)
@click.option(
    "--check-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long one check may take [default: 60, and more for those that compile].",
)
@options.probe_timeout
@click.option(
    "--certify", is_flag=True, help="Skip nothing, and write results/… for publication."
)
@_writes("junit", "JUnit's XML")
@_writes("markdown", "Markdown")
@click.option(
    "--list", "listing", is_flag=True, help="Name the checks, and why each is there."
)
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    *,
    level: int | None,
    only: tuple[str, ...],
    expected: tuple[Path, Expected] | None,
    check_timeout: float | None,
    timeout: float | None,
    certify: bool,
    junit: Path | None,
    markdown: Path | None,
    listing: bool,
    as_json: bool,
) -> None:
    """Check that the accelerator, or NAME, keeps the interface.

    Runs the checks of accel_testing.conformance level by level, each group in a process of its own. The exit
    status is 0 if all passed, and 1 if something failed or could not run. After Ctrl-C or
    SIGTERM the card has what was found until then.
    """
    if certify and expected is not None and expected[1].skip:
        raise click.UsageError(
            f"--certify skips nothing, and {expected[0]} has [skip]; take that section out."
        )
    if certify and only:
        raise click.UsageError(
            "--certify certifies a level, not single checks; leave --check out."
        )
    with answering(as_json=as_json) as output:
        if listing:
            wanted = _wanted(max(LEVELS) if level is None else level, only)
            if as_json:
                rows = [
                    {"name": c.name, "level": c.level, "why": c.why} for c in wanted
                ]
                output.write_json({"checks": rows})
            else:
                cells = [
                    ((f"L{c.level}", ""), (c.name, ""), (c.why, "dim")) for c in wanted
                ]
                output.write_page([page.table(("LEVEL", "CHECK", ""), cells)])
            return
        settings = options.read_settings(timeout)
        _require_pytest()
        if level is None:
            level = max(
                (check.level for check in checks() if check.name in only),
                default=USUAL_LEVEL,
            )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        with Progress(len(_wanted(level, only))) as progress:
            file = expected[0] if expected else None
            subject = _subject(name, settings)
            card = run(
                subject,
                level,
                expected=file,
                only=only,
                seconds=check_timeout,
                begins=progress.show,
            )
        if as_json:
            output.write_json(document.to_dict(card))
        else:
            output.write_page(
                [*_page(card, expected[1] if expected else NOTHING), *_next(card)]
            )
    if junit is not None:
        _write(junit, document.junit(card))
    if markdown is not None:
        _write(markdown, document.markdown(card))
    if card.is_interrupted:
        raise KeyboardInterrupt
    if certify:
        _certify(card)
    kept = _has_run(card) and all(result.outcome.is_good for result in card.results)
    ctx.exit(0 if kept else 1)


def _wanted(level: int, only: tuple[str, ...]) -> list[Check]:
    return [
        check
        for check in checks()
        if check.level <= level and (not only or check.name in only)
    ]


def _require_pytest() -> None:
    if find_spec("pytest") is None:
        install = vendors.install_command("accel-testing")
        raise IntegrationMissingError(
            f"accel verify needs pytest, which is not installed: {install}"
        )


def _subject(name: Pin | None, settings: Settings) -> Verdict:
    """The backend to check; raises `BackendNotFoundError`."""
    load, settings = (
        IsolatedLoader(settings.probe_timeout),
        replace(settings, isolated=True),
    )
    if name is not None:
        found = find_backends(name, settings, load)
        if found:
            return found[0]
        if str(name) != simulated.device()[0]:
            raise BackendNotFoundError(messages.not_found(f"accel verify {name}", name))
        pin = Pin(
            "generic", ""
        )  # no plugin declares the simulated device, and DS_ACCELERATOR may name another
    else:
        pin = Pin(select(settings, isolated=True).name or "cpu", "")
    return find_backends(pin, settings, load)[0]


def _has_run(card: Card) -> bool:
    """Whether the device was there for any check of it."""
    of_the_device = [
        result for result in card.results if result.check.level
    ] or card.results
    return any(result.outcome is not Outcome.NOT_RUN for result in of_the_device)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(
            f"{file}: {error.strerror}; nothing was written."
        ) from None


def _certify(card: Card) -> None:
    try:
        place = document.certify(card, _RESULTS)
    except OSError as error:
        raise click.ClickException(
            f"{_RESULTS}: {error.strerror}; nothing was certified."
        ) from None
    click.echo(f"Written: {place}", err=True)


# --- the card ------------------------------------------------------------------------------------------


def _page(card: Card, expected: Expected) -> list[page.Part]:
    source = f"{card.distribution} {card.version}".strip()
    style = "bold green" if card.reached == card.level else "bold yellow"
    parts: list[page.Part] = [
        page.paragraph(
            (card.score, style),
            (f"  {card.backend} ({source}), torch {card.torch or 'missing'}", ""),
        ),
    ]
    if card.frameworks:
        parts.append(page.paragraph((f"With {', '.join(card.frameworks)}.", "dim")))
    if card.simulated:
        parts.append(
            page.paragraph((f"Simulated, no real device: {card.simulated}.", "yellow"))
        )
    parts.append(page.paragraph())
    parts.append(
        page.table(
            _COLUMNS,
            [_row(card, level) for level in range(card.level + 1) if card.of(level)],
        )
    )
    bad = [result for result in card.results if not result.outcome.is_good]
    if bad:
        parts.append(page.heading("What is not kept"))
        parts += [_marked(result) for result in _joined(bad)]
    left = [
        result
        for result in card.results
        if result.outcome in (Outcome.EXPECTED, Outcome.SKIPPED)
    ]
    if left:
        parts.append(page.heading("As the vendor's file says"))
        parts += [_marked(result) for result in left]
    none = [result for result in card.results if result.outcome is Outcome.NOT_CLAIMED]
    if none:
        parts.append(page.heading("Not claimed"))
        by_reason: dict[str, list[str]] = {}
        for result in none:
            by_reason.setdefault(result.message, []).append(result.check.name)
        parts += [
            page.hanging(
                [(("–", "dim"), [(f"{reason}: ", ""), (", ".join(names), "dim")])], 2
            )
            for reason, names in by_reason.items()
        ]
    return parts


def _next(card: Card) -> list[page.Part]:
    """How to go on where there is no such device here."""
    if card.simulated or _has_run(card):
        return []
    return [page.paragraph(), page.paragraph((_simulated(card.backend), "yellow"))]


def _simulated(name: str) -> str:
    found = simulated.simulator()
    if found is None:
        install = vendors.install_command("accel-simulated")
        return f"Without the device: {install}; accel simulate --list names what it simulates."
    provider = found.load()
    if name not in provider.devices() and name not in provider.declared():
        return f"Without the device: `accel simulate --list` has no {name}, run this where it is."
    return f"Without the device: accel simulate {name} -- accel verify {name}"


def _row(card: Card, level: int) -> list[page.Cell]:
    results = card.of(level)
    passed = sum(result.outcome is Outcome.PASSED for result in results)
    bad = sum(not result.outcome.is_good for result in results)
    none = sum(result.outcome is Outcome.NOT_CLAIMED for result in results)
    return [
        (f"L{level}", "bold"),
        (f"{passed}/{len(results)}", "green" if not bad else ""),
        (str(bad or ""), "red"),
        (str(none or ""), "dim"),
        (LEVELS[level], "dim"),
    ]


_MARKS = {Outcome.EXPECTED: ("!", "yellow"), Outcome.SKIPPED: ("–", "dim")}


def _marked(result: Result) -> page.Part:
    mark = _MARKS.get(result.outcome, ("✗", "bold red"))
    how = "" if result.outcome is Outcome.FAILED else f"{result.outcome.value}: "
    words = one_line(f"{how}{result.message}")
    return page.hanging([(mark, [(result.check.name, "bold"), (f"  {words}", "")])], 2)


def _joined(results: list[Result]) -> list[Result]:
    """Checks that could not run for one reason as one line."""
    kept: list[Result] = []
    for (outcome, message, _), group in groupby(
        results, key=lambda r: (r.outcome, r.message, r.check.level)
    ):
        found = list(group)
        first = found[0]
        if outcome is Outcome.NOT_RUN and message and len(found) > 1:
            name = f"L{first.check.level}: {len(found)} checks"
            first = first._replace(check=first.check._replace(name=name))
            found = [first]
        kept += found
    return kept
