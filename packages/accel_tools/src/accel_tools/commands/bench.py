"""`accel bench`: measure how fast an accelerator copies, multiplies, launches and communicates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.hardware import vendors
from accel_core.settings import Pin, Settings
from accel_core.text import one_line
from accel_tools.bench import chart, document
from accel_tools.bench.document import Run
from accel_tools.bench.facts import device_facts, machine_facts
from accel_tools.bench.records import FULL, QUICK, Effort, Measurement, Outcome
from accel_tools.bench.run import all_steps
from accel_tools.bench.units import format_value, format_with_prefix
from accel_tools.cli.progress import Progress
from accel_train.child_accelerator import Chosen, run_in_child
from accel_train.child_accelerator import Progress as StepProgress

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_TITLES = ("MEASUREMENT", "RATE", "DETAILS")
_CHANGE_TITLES = ("MEASUREMENT", "BEFORE", "NOW", "NOW/BEFORE", "")
_STYLES = {
    Outcome.NOT_MEASURED: "dim",
    Outcome.FAILED: "red",
    Outcome.WRONG: "bold red",
}


class _EarlierRun(NamedTuple):
    """An earlier run, and the file that contains it."""

    path: Path
    run: Run


# --- Options, checked before torch is imported ---------------------------------------


def _read_earlier_run(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> _EarlierRun | None:
    """Return the run in the file that `--compare` names.

    Raises `click.BadParameter` if the file cannot be read.
    """
    if value is None:
        return None
    try:
        return _EarlierRun(value, document.read_run(value))
    except ValueError as error:
        raise click.BadParameter(
            f"{one_line(str(value))}: {one_line(str(error))}."
        ) from None


def _require_chart_path(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> Path | None:
    """Return the path of the chart file of --plot.

    Raises `click.BadParameter` if the chart cannot be written, so that the command fails before the
    measurements.
    """
    if value is None:
        return None
    path, suffix = one_line(str(value)), value.suffix.lower()
    if suffix not in chart.SUFFIXES:
        raise click.BadParameter(
            f"{path}: expected a file name that ends in one of {', '.join(chart.SUFFIXES)}."
        )
    if suffix != ".txt" and find_spec("matplotlib") is None:
        install = vendors.install_command("accel-tools", extra="plot")
        raise click.BadParameter(
            f"{path}: matplotlib is not installed. Use a file name that ends in .txt for a "
            f"text chart, or install matplotlib: {install}"
        )
    try:
        _require_writable(value)
    except OSError as error:
        raise click.BadParameter(_write_error(value, error)) from None
    return value


def _require_writable(path: Path) -> None:
    """Raise `OSError` if the file cannot be written.

    If the file does not exist, it is created and removed again.
    """
    existed = path.exists()
    # Opening for appending raises an error or creates the file, and changes no existing content.
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def _write_error(path: Path, error: OSError) -> str:
    """Return the message that a file cannot be written."""
    return f"{one_line(str(path))} cannot be written: {error.strerror or error}."


def _path_option(
    name: str, metavar: str, callback: Callable[..., Any], help_text: str
) -> Callable[[F], F]:
    """Return the click option --NAME, whose value is a path that `callback` checks."""
    return click.option(
        f"--{name}",
        type=click.Path(path_type=Path),
        metavar=metavar,
        callback=callback,
        help=help_text,
    )


@click.command("bench")
@options.backend_name
@click.option(
    "--quick",
    is_flag=True,
    help="Use fewer repeats and smaller sizes, to take a few seconds instead of 15.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of ranks for the collectives; 1 skips the collectives. "
    "[default: one per device, at least 2]",
)
@_path_option(
    "compare",
    "OLD.json",
    _read_earlier_run,
    "Compare with an earlier run, whose --json output is in OLD.json.",
)
@_path_option(
    "plot",
    "FILE",
    _require_chart_path,
    "Draw a chart: .svg or .png (needs matplotlib), or .txt.",
)
@options.probe_timeout
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    *,
    quick: bool,
    ranks: int | None,
    compare: _EarlierRun | None,
    plot: Path | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Measure how fast the chosen accelerator, or NAME, is.

    Measures copies between host and device and on the device, matrix products by data type, kernel launches,
    and collectives between ranks on this host. The results are checked for correctness too. Takes about
    15 seconds; run nothing else in the meantime. Exit status: 0 = success, 1 = a measurement failed or a
    result was wrong, 2 = usage error.
    """
    with answering(as_json=as_json) as output:
        run = _measure(options.read_settings(timeout), name, ranks, quick=quick)
        comparison = None
        if compare is not None:
            comparison = _comparison_to_dict(compare, run)
        if as_json:
            result = document.run_to_dict(run)
            if comparison is not None:
                result["comparison"] = comparison
            output.write_json(result)
        else:
            output.write_page(_page(run, comparison))
    if plot is not None:
        _draw_chart(plot, run, compare)
    outcomes = {measurement.outcome for measurement in run.measurements}
    has_problem = Outcome.FAILED in outcomes or Outcome.WRONG in outcomes
    ctx.exit(1 if has_problem else 0)


def _measure(
    settings: Settings, name: Pin | None, ranks: int | None, *, quick: bool
) -> Run:
    """Make all measurements in a child process, so that a crash there does not end this process."""
    effort = QUICK if quick else FULL
    # Arguments and results of a child process are JSON-serializable.
    arguments = {"effort": list(effort), "quick": quick, "ranks": ranks}
    result = run_in_child(
        measure_in_child, arguments, settings, name, timeout=None, live=True
    )
    return document.run_from_dict(result.value)


def measure_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_step: StepProgress
) -> dict[str, Any]:
    """Make all measurements in a child process.

    Returns the run as JSON-serializable values, in the format of `run_to_dict`.

    Args:
        chosen: The accelerator to measure.
        arguments: A dictionary with the keys `effort` (a list of the fields of an `Effort`), `quick` and
            `ranks`.
        report_step: A function that reports the current step to the parent process.
    """
    start, start_time = time.perf_counter(), document.current_time()
    accelerator = chosen.accelerator
    report_step("device_properties()")
    device, machine = device_facts(accelerator), machine_facts()
    effort = Effort(*arguments["effort"])
    steps = all_steps(accelerator, effort, arguments["ranks"])
    measurements: list[Measurement] = []
    with Progress(len(steps)) as progress:
        for step in steps:
            report_step(step.title)
            progress.show(step.title)
            measurements += step.run()
    run = Run(
        time=start_time,
        seconds=time.perf_counter() - start,
        quick=arguments["quick"],
        machine=machine,
        accelerator=device,
        measurements=tuple(measurements),
    )
    return document.run_to_dict(run)


def _comparison_to_dict(earlier: _EarlierRun, run: Run) -> dict[str, Any]:
    """Return the comparison with the earlier run as JSON-serializable values.

    It contains the changes, and warnings about differences between the runs.
    """
    changes = document.find_changes(earlier.run.measurements, run.measurements)
    return {
        "file": str(earlier.path),
        "time": earlier.run.time,
        "warnings": document.find_differences(earlier.run, run),
        "changes": [change.to_dict() for change in changes],
    }


def _draw_chart(path: Path, run: Run, earlier: _EarlierRun | None) -> None:
    """Draw the chart that `--plot` requests.

    Raises `click.ClickException` if the file cannot be written.
    """
    earlier_by_name = None
    if earlier is not None:
        earlier_by_name = {m.name: m for m in earlier.run.measurements}
    machine = run.machine
    title = f"accel bench {run.accelerator['name']}: {_product(run)}"
    subtitle = (
        f"torch {machine['torch']}, {machine['system']}, "
        f"{page.count(machine['cores'], 'core')}, {run.time}"
    )
    try:
        chart.draw(path, title, subtitle, run.measurements, earlier_by_name)
    except OSError as error:
        raise click.ClickException(_write_error(path, error)) from None


# --- The page ------------------------------------------------------------------------


def _page(run: Run, comparison: dict[str, Any] | None) -> list[page.Part]:
    """Return the page: the device, a table of the measurements, and a comparison if there is one."""
    parts = _describe_run(run)
    parts.append(page.paragraph())
    parts.append(page.table(_TITLES, [_measurement_row(m) for m in run.measurements]))
    if comparison is not None:
        parts += _describe_comparison(run, comparison)
    return parts


def _describe_run(run: Run) -> list[page.Part]:
    """Return the lines for the device and on the facts that affect the figures."""
    machine, device = run.machine, run.accelerator
    source = f" ({device['distribution']} {device['version']})"
    devices = page.count(device["devices"], "device")
    cores = page.count(machine["cores"], "core")
    threads = page.count(machine["torch_threads"], "thread")
    duration = f"{run.seconds:.0f} s"
    if run.quick:
        duration += ", --quick"
    facts = (
        ("device", f"{device['device']}, {devices} in all"),
        ("driver", one_line(device["driver"] or "")),
        ("CPU", f"{one_line(machine['cpu'])}, {cores}"),
        ("torch", f"{machine['torch']}, {threads}"),
        ("load", _describe_load(machine)),
        ("duration", duration),
    )
    name = (device["name"], "bold green")
    product = (f": {_product(run)}", "")
    return [page.paragraph(name, (source, "dim"), product), page.facts(facts)]


def _product(run: Run) -> str:
    """Return the name of the measured device for people."""
    return one_line(run.accelerator["product"] or run.accelerator["device"])


def _describe_load(machine: Mapping[str, Any]) -> str:
    """Describe the load of the CPU cores before the run.

    Returns an empty string if the system does not report the load.
    """
    load = machine["load"]
    if load is None:
        return ""
    text = f"{load:.1f} before the run"
    is_busy = load > machine["cores"] / 2
    if is_busy:
        text += ". The machine was busy, so the device may be faster than measured"
    return text


def _measurement_row(measurement: Measurement) -> list[page.Cell]:
    """Return the row of the table on a measurement, with the reason if the value is missing."""
    title = (measurement.title, "bold")
    value = (format_value(measurement), "")
    outcome = measurement.outcome
    if measurement.value is None:
        reason = one_line(measurement.reason)
        if outcome is not Outcome.NOT_MEASURED:
            reason = f"{outcome.value}: {reason}"
        return [title, value, (reason, _STYLES[outcome])]
    times = page.count(measurement.repeats, "time")
    if measurement.calls > 1:
        times = f"{measurement.repeats} x {measurement.calls} times"
    spread_percent = (measurement.spread or 0) * 100
    details = f"{measurement.size}, {times}, spread {spread_percent:.0f} %"
    return [title, value, (details, ""), (one_line(measurement.note), "dim")]


def _describe_comparison(run: Run, comparison: dict[str, Any]) -> list[page.Part]:
    """Return the part of the page that shows the changes since an earlier run."""
    file, time_of_run = one_line(comparison["file"]), one_line(comparison["time"])
    parts: list[page.Part] = [page.heading(f"Compared with {file} ({time_of_run})")]
    for warning in comparison["warnings"]:
        cells = ("Warning: ", "bold yellow"), (f"{one_line(warning)}.", "")
        parts.append(page.paragraph(*cells))
    measurement_by_name = {m.name: m for m in run.measurements}
    rows = []
    for change in comparison["changes"]:
        rows.append(_change_row(change, measurement_by_name[change["name"]]))
    if rows:
        parts.append(page.table(_CHANGE_TITLES, rows))
    else:
        text = "The two runs have no measurement in common."
        parts.append(page.paragraph((text, "")))
    return parts


def _change_row(change: dict[str, Any], now: Measurement) -> list[page.Cell]:
    """Return the row for a change; `now` is the measurement in the new run."""
    verdict = change["verdict"] if change["verdict"] != "same" else ""
    style = {"faster": "green", "slower": "red"}.get(verdict, "")
    size = "" if change["same_size"] else f"different size: {now.size} now"
    return [
        (now.title, "bold"),
        (format_with_prefix(change["before"], now.unit), ""),
        (format_value(now), ""),
        (f"{change['ratio']:.2f} {verdict}".strip(), style),
        (size, "dim"),
    ]
