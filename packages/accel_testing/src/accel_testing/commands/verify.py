"""`accel verify`: check whether a backend conforms to the interface."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Sequence
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
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.catalogue import select as select_checks
from accel_testing.conformance.expected import NOTHING, Expected, read
from accel_testing.conformance.groups import LEVELS, USUAL_LEVEL
from accel_testing.conformance.records import ConformanceReport, Outcome, Result
from accel_testing.conformance.run import run
from accel_tools.cli.progress import Progress

__all__ = ["command"]

_CERTIFICATES = Path("results")
_COLUMNS = ("LEVEL", "PASSED", "FAILED", "NOT CLAIMED", "")


def _read_expected(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> tuple[Path, Expected] | None:
    """Return the path and contents of the file that lists the expected results.

    Raises `click.BadParameter` if the file is invalid.
    """
    if value is None:
        return None
    try:
        return value, read(value)
    except SettingError as error:
        raise click.BadParameter(one_line(str(error))) from None


def _require_checks(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of the checks to run. Raises `click.BadParameter` if a name is unknown."""
    known = [check.name for check in checks()]
    unknown = [name for name in value if name not in known]
    if unknown:
        raise click.BadParameter(
            f"{', '.join(unknown)}: unknown check. `accel verify --list` lists the checks."
        )
    return value


def _require_folder(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> Path | None:
    """Return the path of a report to write. Raises `click.BadParameter` if its folder does not exist.

    click calls this function before the checks run, because the checks may take minutes.
    """
    if value is not None and not value.absolute().parent.is_dir():
        folder = shlex.quote(str(value.parent))
        raise click.BadParameter(
            f"there is no folder {folder}. Create it first: mkdir -p {folder}"
        )
    return value


def _report_option(name: str, description: str) -> Callable[[Any], Any]:
    """Return the command-line option `--NAME FILE`, which also writes the report as `description`."""
    path_type = click.Path(dir_okay=False, writable=True, path_type=Path)
    help_text = f"Also write the report as {description}."
    return click.option(
        f"--{name}",
        type=path_type,
        callback=_require_folder,
        metavar="FILE",
        help=help_text,
    )


@click.command("verify")
@options.backend_name
@click.option(
    "--level",
    type=click.IntRange(min(LEVELS), max(LEVELS)),
    show_default=f"{USUAL_LEVEL}, or the level of --check",
    metavar="N",
    help="; ".join(f"{level}: {subject}" for level, subject in LEVELS.items()) + ".",
)
@click.option(
    "--check",
    "check_names",
    multiple=True,
    callback=_require_checks,
    metavar="CHECK",
    help="Only this check; repeatable.",
)
@click.option(
    "--expected",
    type=click.Path(path_type=Path),
    callback=_read_expected,
    metavar="FILE",
    help="TOML file that lists checks to skip in [skip] and expected failures in [fails], with reasons.",
)
@click.option(
    "--check-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit for one check, in seconds [default: 60, longer for checks that compile].",
)
@options.probe_timeout
@click.option(
    "--certify",
    is_flag=True,
    help="Run every check, and write a certificate into results/…",
)
@_report_option("junit", "JUnit's XML")
@_report_option("markdown", "Markdown")
@click.option(
    "--list",
    "should_list",
    is_flag=True,
    help="List the checks and what each check is for.",
)
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    *,
    level: int | None,
    check_names: tuple[str, ...],
    expected: tuple[Path, Expected] | None,
    check_timeout: float | None,
    timeout: float | None,
    certify: bool,
    junit: Path | None,
    markdown: Path | None,
    should_list: bool,
    as_json: bool,
) -> None:
    """Run the conformance checks on the accelerator or NAME.

    Runs the checks of accel_testing.conformance level by level, each group in a separate process. The exit
    status is 0 if all checks passed, and 1 if a check failed or could not run. After Ctrl-C or SIGTERM, the
    report contains the results so far.
    """
    expected_file, expected_outcomes = expected or (None, NOTHING)
    if certify:
        _require_certifiable(expected_file, expected_outcomes, check_names)
    with answering(as_json=as_json) as output:
        if should_list:
            _list_checks(output, level, check_names, as_json=as_json)
            return
        settings = options.read_settings(timeout)
        _require_pytest()
        if level is None:
            level = _default_level(check_names)
        _interrupt_on_sigterm()
        with Progress(len(select_checks(level, check_names))) as progress:
            report = run(
                _find_backend(name, settings),
                level,
                expected=expected_file,
                only=check_names,
                seconds=check_timeout,
                on_begin=progress.show,
            )
        if as_json:
            output.write_json(document.to_dict(report))
        else:
            output.write_page([*_report_page(report), *_next_step(report)])
    _write_if_requested(junit, document.junit(report))
    _write_if_requested(markdown, document.markdown(report))
    if report.is_interrupted:
        raise KeyboardInterrupt
    if certify:
        _certify(report)
    ctx.exit(_exit_status(report))


def _exit_status(report: ConformanceReport) -> int:
    """Return 0 if at least one check ran and all results are good, or 1 otherwise."""
    all_good = all(result.outcome.is_good for result in report.results)
    if all_good and _has_run_any_check(report):
        return 0
    return 1


def _interrupt_on_sigterm() -> None:
    """Make SIGTERM interrupt the run like Ctrl-C. Only the main thread can install the signal handler."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _require_certifiable(
    file: Path | None, expected: Expected, check_names: tuple[str, ...]
) -> None:
    """Raise `click.UsageError` if an option rules out a certificate."""
    if expected.skip:
        raise click.UsageError(
            f"--certify runs every check, but {file} has a section [skip]. Remove that section."
        )
    if check_names:
        raise click.UsageError(
            "--certify certifies a level, not single checks. Leave --check out."
        )


def _default_level(check_names: tuple[str, ...]) -> int:
    """Return the highest level of the checks with these names, or the usual level if there are no names."""
    if not check_names:
        return USUAL_LEVEL
    return max(check.level for check in checks() if check.name in check_names)


def _list_checks(
    output: options.Output,
    level: int | None,
    check_names: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Write the name and purpose of each selected check, where a `level` of `None` selects all levels."""
    if level is None:
        level = max(LEVELS)
    selected = select_checks(level, check_names)
    if as_json:
        rows = [
            {"name": check.name, "level": check.level, "why": check.why}
            for check in selected
        ]
        output.write_json({"checks": rows})
        return
    table_rows = [
        ((f"L{check.level}", ""), (check.name, ""), (check.why, "dim"))
        for check in selected
    ]
    output.write_page([page.table(("LEVEL", "CHECK", ""), table_rows)])


def _require_pytest() -> None:
    """Raise `IntegrationMissingError` if pytest is not installed."""
    if find_spec("pytest") is None:
        install = vendors.install_command("accel-testing")
        raise IntegrationMissingError(
            f"accel verify needs pytest, which is not installed. Next step: {install}"
        )


def _find_backend(name: Pin | None, settings: Settings) -> Verdict:
    """Return the verdict on the backend `name`, or on the chosen backend if `name` is `None`.

    Raises `BackendNotFoundError` if no plugin declares the backend.
    """
    loader = IsolatedLoader(settings.probe_timeout)
    isolated = replace(settings, isolated=True)
    if name is None:
        chosen_name = select(isolated, isolated=True).name or "cpu"
        name = Pin(chosen_name, "")
    verdicts = find_backends(name, isolated, loader)
    if verdicts:
        return verdicts[0]
    simulated_name, _device_type = simulated.simulated_device()
    if str(name) != simulated_name:
        raise BackendNotFoundError(
            messages.not_found_message(f"accel verify {name}", name)
        )
    # No plugin declares the simulated device, and DS_ACCELERATOR may name a different backend.
    generic_verdicts = find_backends(Pin("generic", ""), isolated, loader)
    return generic_verdicts[0]


def _has_run_any_check(report: ConformanceReport) -> bool:
    """Return whether at least one check above level 0 ran, or any check if only level 0 was requested.

    Level 0 needs no device.
    """
    # Level 0 checks only the declaration, which needs no device.
    results = [result for result in report.results if result.check.level > 0]
    if not results:
        results = list(report.results)
    return any(result.outcome is not Outcome.NOT_RUN for result in results)


def _write_if_requested(file: Path | None, text: str) -> None:
    """Write the text to the file if a file was requested. Raises `click.ClickException` if writing fails."""
    if file is None:
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(
            f"{file}: {error.strerror}. The report was not written."
        ) from None


def _certify(report: ConformanceReport) -> None:
    """Write the certificate, and print its folder. Raises `click.ClickException` if writing fails."""
    try:
        certificate = document.certify(report, _CERTIFICATES)
    except OSError as error:
        raise click.ClickException(
            f"{_CERTIFICATES}: {error.strerror}. The certificate was not written."
        ) from None
    click.echo(f"Written: {certificate}", err=True)


# --- the report ----------------------------------------------------------------------------------------


def _report_page(report: ConformanceReport) -> list[page.Part]:
    """Return the parts of a report: the score, a table of levels, and the checks that did not pass."""
    levels = [level for level in range(report.level + 1) if report.results_of(level)]
    rows = [_level_row(report, level) for level in levels]
    failed, expected_or_skipped = [], []
    for result in report.results:
        if not result.outcome.is_good:
            failed.append(result)
        elif result.outcome in (Outcome.EXPECTED, Outcome.SKIPPED):
            expected_or_skipped.append(result)
    return [
        *_header(report),
        page.paragraph(),
        page.table(_COLUMNS, rows),
        *_section("Failed", _merge_checks_that_did_not_run(failed)),
        *_section("Expected failures and skips", expected_or_skipped),
        *_not_claimed_section(report),
    ]


def _section(title: str, results: Sequence[Result]) -> list[page.Part]:
    """Return a heading followed by a line for each result, or an empty list if there are no results."""
    if not results:
        return []
    return [page.heading(title), *[_result_line(result) for result in results]]


def _header(report: ConformanceReport) -> list[page.Part]:
    """Return the first lines of a report, with the score, the backend, and the frameworks."""
    source = f"{report.distribution} {report.version}".strip()
    style = "bold green" if report.reached == report.level else "bold yellow"
    subject = f"  {report.backend} ({source}), torch {report.torch or 'missing'}"
    parts: list[page.Part] = [page.paragraph((report.score, style), (subject, ""))]
    if report.frameworks:
        frameworks = f"With {', '.join(report.frameworks)}."
        parts.append(page.paragraph((frameworks, "dim")))
    if report.simulated:
        note = f"Simulated, no real device: {report.simulated}."
        parts.append(page.paragraph((note, "yellow")))
    return parts


def _not_claimed_section(report: ConformanceReport) -> list[page.Part]:
    """Return a section with the checks of features that the device does not claim, grouped by reason."""
    names_by_reason: dict[str, list[str]] = {}
    for result in report.results:
        if result.outcome is Outcome.NOT_CLAIMED:
            names_by_reason.setdefault(result.message, []).append(result.check.name)
    if not names_by_reason:
        return []
    parts = [page.heading("Not claimed")]
    bullet = ("–", "dim")
    for reason, names in names_by_reason.items():
        line = [(f"{reason}: ", ""), (", ".join(names), "dim")]
        parts.append(page.two_columns([(bullet, line)], indent=2))
    return parts


def _next_step(report: ConformanceReport) -> list[page.Part]:
    """Return the suggested next step if the device is missing, or an empty list if it is present."""
    if report.simulated or _has_run_any_check(report):
        return []
    return [
        page.paragraph(),
        page.paragraph((_suggest_simulation(report.backend), "yellow")),
    ]


def _suggest_simulation(name: str) -> str:
    """Return the command that simulates the device, or the command that installs the simulator."""
    simulator = simulated.simulator()
    if simulator is None:
        install = vendors.install_command("accel-simulated")
        return (
            f"To run the checks without the device, install accel-simulated: {install}. "
            "accel simulate --list then lists the devices."
        )
    provider = simulator.load()
    if name not in provider.devices() and name not in provider.declared_devices():
        return f"{name} cannot be simulated: run accel verify {name} on a machine with the device."
    return f"To run the checks without the device: accel simulate {name} -- accel verify {name}"


def _level_row(report: ConformanceReport, level: int) -> list[page.Cell]:
    """Return the table row for one level of a report."""
    results = report.results_of(level)
    outcomes = [result.outcome for result in results]
    passed_count = outcomes.count(Outcome.PASSED)
    not_claimed_count = outcomes.count(Outcome.NOT_CLAIMED)
    bad_count = len([outcome for outcome in outcomes if not outcome.is_good])
    passed_style = "" if bad_count else "green"
    return [
        (f"L{level}", "bold"),
        (f"{passed_count}/{len(results)}", passed_style),
        (_number_or_blank(bad_count), "red"),
        (_number_or_blank(not_claimed_count), "dim"),
        (LEVELS[level], "dim"),
    ]


def _number_or_blank(number: int) -> str:
    """Return the number as text, or an empty string for 0."""
    if number == 0:
        return ""
    return str(number)


_MARKS = {Outcome.EXPECTED: ("!", "yellow"), Outcome.SKIPPED: ("–", "dim")}


def _result_line(result: Result) -> page.Part:
    """Return the line for a check that did not pass, with a mark, the check's name, and the message."""
    mark = _MARKS.get(result.outcome, ("✗", "bold red"))
    message = result.message
    if result.outcome is not Outcome.FAILED:
        message = f"{result.outcome.value}: {message}"
    line = [(result.check.name, "bold"), (f"  {one_line(message)}", "")]
    return page.two_columns([(mark, line)], indent=2)


def _merge_checks_that_did_not_run(results: list[Result]) -> list[Result]:
    """Return the results, with checks of one level that did not run for the same reason merged into one."""

    def group_key(result: Result) -> tuple[Outcome, str, int]:
        return result.outcome, result.message, result.check.level

    merged: list[Result] = []
    for (outcome, reason, level), group in groupby(results, group_key):
        group_results = list(group)
        if outcome is Outcome.NOT_RUN and reason and len(group_results) > 1:
            # One result stands for all results of the group.
            first = group_results[0]
            name = f"L{level}: {len(group_results)} checks"
            merged.append(first._replace(check=first.check._replace(name=name)))
        else:
            merged += group_results
    return merged
