"""`accel bench`: measure how fast an accelerator copies, multiplies, launches and communicates."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

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
from accel_tools.bench.run import steps
from accel_tools.bench.units import in_words
from accel_tools.cli.progress import Progress
from accel_train.child_accelerator import Chosen, run_in_child
from accel_train.child_accelerator import Progress as StepProgress

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_TITLES = ("WHAT", "RATE", "HOW")
_CHANGES = ("WHAT", "BEFORE", "NOW", "NOW/BEFORE", "")
_STYLES = {
    Outcome.NOT_MEASURED: "dim",
    Outcome.FAILED: "red",
    Outcome.WRONG: "bold red",
}


# --- what is asked, judged before torch is imported ----------------------------------------------------


def _earlier(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> tuple[Path, Run] | None:
    if value is None:
        return None
    try:
        return value, document.read(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{one_line(str(value))}: {one_line(str(error))}."
        ) from None


def _picture(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> Path | None:
    """The path, which can be written: a minute of measuring must not be lost to a slip of the finger."""
    if value is None:
        return None
    shown, kind = one_line(str(value)), value.suffix.lower()
    if kind not in chart.FORMS:
        raise click.BadParameter(
            f"{shown}: expected a name that ends in {', '.join(chart.FORMS)}."
        )
    if kind != ".txt" and find_spec("matplotlib") is None:
        install = vendors.install_command("accel-tools", extra="plot")
        raise click.BadParameter(
            f"{shown}: matplotlib is not installed. Give a name that ends in .txt for bars as text, "
            f"or: {install}"
        )
    existed = value.exists()
    try:
        with value.open("ab"):
            pass
        if not existed:
            value.unlink()
    except OSError as error:
        raise click.BadParameter(
            f"{shown} cannot be written: {error.strerror or error}."
        ) from None
    return value


def _path(
    name: str, metavar: str, callback: Callable[..., Any], words: str
) -> Callable[[F], F]:
    kind = click.Path(path_type=Path)
    return click.option(
        f"--{name}", type=kind, metavar=metavar, callback=callback, help=words
    )


@click.command("bench")
@options.backend_name
@click.option(
    "--quick",
    is_flag=True,
    help="Fewer repeats and smaller sizes: takes seconds instead of 15 s.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks in the collectives [default: one for each device, at least 2]; 1 leaves them out.",
)
@_path(
    "compare", "OLD.json", _earlier, "Compare with the --json output of an earlier run."
)
@_path(
    "plot",
    "FILE",
    _picture,
    "Draw the figures: .svg or .png (needs matplotlib), or .txt.",
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
    compare: tuple[Path, Run] | None,
    plot: Path | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Measure how fast the chosen accelerator, or NAME, is.

    Copies between host and device and on the device, matrix products by data type, launches, and collectives
    between ranks on this host. The results are checked for correctness too. Takes about 15 seconds; run
    nothing else in the meantime. Exit status: 1 if a measurement failed or a result was wrong, else 0.
    """
    with answering(as_json=as_json) as output:
        run = _measure(options.read_settings(timeout), name, ranks, quick=quick)
        answer = document.to_dict(run)
        if compare is not None:
            answer["comparison"] = _comparison(compare, run)
        if as_json:
            output.write_json(answer)
        else:
            output.write_page(_page(run, answer.get("comparison")))
    if plot is not None:
        _draw(plot, run, compare)
    failed = any(m.outcome in (Outcome.FAILED, Outcome.WRONG) for m in run.measurements)
    ctx.exit(1 if failed else 0)


def _measure(
    settings: Settings, name: Pin | None, ranks: int | None, *, quick: bool
) -> Run:
    """The run, made in a child process: no device that crashes takes what is to be said with it."""
    given = {"effort": list(QUICK if quick else FULL), "quick": quick, "ranks": ranks}
    return document.of_dict(
        run_in_child(
            measured_in_child, given, settings, name, timeout=None, live=True
        ).value
    )


def measured_in_child(
    chosen: Chosen, arguments: dict[str, Any], step: StepProgress
) -> dict[str, Any]:
    """In the child: return the document of a run."""
    start, began = time.perf_counter(), document.started()
    accelerator = chosen.accelerator
    step("device_properties()")
    device, machine = device_facts(accelerator), machine_facts()
    todo = steps(accelerator, Effort(*arguments["effort"]), arguments["ranks"])
    done: list[Measurement] = []
    with Progress(len(todo)) as progress:
        for each in todo:
            step(each.title)
            progress.show(each.title)
            done += each.run()
    seconds = time.perf_counter() - start
    return document.to_dict(
        Run(began, seconds, arguments["quick"], machine, device, tuple(done))
    )


def _comparison(earlier: tuple[Path, Run], run: Run) -> dict[str, Any]:
    path, before = earlier
    return {
        "file": str(path),
        "time": before.time,
        "warnings": document.differences(before, run),
        "changes": [
            change.to_dict()
            for change in document.compare(before.measurements, run.measurements)
        ],
    }


def _draw(path: Path, run: Run, compare: tuple[Path, Run] | None) -> None:
    before = (
        {m.name: m for m in compare[1].measurements} if compare is not None else None
    )
    machine = run.machine
    title = f"accel bench {run.accelerator['name']}: {_product(run)}"
    subtitle = (
        f"torch {machine['torch']}, {machine['system']}, "
        f"{page.count(machine['cores'], 'core')}, {run.time}"
    )
    try:
        chart.draw(path, title, subtitle, run.measurements, before)
    except OSError as error:
        raise click.ClickException(
            f"{path} cannot be written: {error.strerror or error}"
        ) from None


# --- the page ------------------------------------------------------------------------------------------


def _page(run: Run, comparison: dict[str, Any] | None) -> list[page.Part]:
    parts = [
        *_identity(run),
        page.paragraph(),
        page.table(_TITLES, [_row(m) for m in run.measurements]),
    ]
    return parts if comparison is None else [*parts, *_compared(run, comparison)]


def _identity(run: Run) -> list[page.Part]:
    machine, device = run.machine, run.accelerator
    source = f" ({device['distribution']} {device['version']})"
    threads = page.count(machine["torch_threads"], "thread")
    return [
        page.paragraph(
            (device["name"], "bold green"), (source, "dim"), (f": {_product(run)}", "")
        ),
        page.facts(
            (
                (
                    "device",
                    f"{device['device']}, {page.count(device['devices'], 'device')} in all",
                ),
                ("driver", one_line(device["driver"] or "")),
                (
                    "processor",
                    f"{one_line(machine['cpu'])}, {page.count(machine['cores'], 'core')}",
                ),
                ("torch", f"{machine['torch']}, {threads}"),
                ("load", _load(machine)),
                ("took", f"{run.seconds:.0f} s{', --quick' if run.quick else ''}"),
            )
        ),
    ]


def _product(run: Run) -> str:
    return one_line(run.accelerator["product"] or run.accelerator["device"])


def _load(machine: Any) -> str:
    """Return the load of the cores before the run; empty if the system does not count it."""
    load, cores = machine["load"], machine["cores"]
    if load is None:
        return ""
    busy = (
        "; the machine is busy, so the device may be faster than these figures"
        if load > cores / 2
        else ""
    )
    return f"{load:.1f} before the run{busy}"


def _row(m: Measurement) -> list[page.Cell]:
    first: list[page.Cell] = [(m.title, "bold"), (in_words(m), "")]
    if m.value is None:
        word = "" if m.outcome is Outcome.NOT_MEASURED else f"{m.outcome.value}: "
        return [*first, (f"{word}{one_line(m.reason)}", _STYLES[m.outcome])]
    times = (
        f"{m.repeats} x {m.calls} times"
        if m.calls > 1
        else page.count(m.repeats, "time")
    )
    how = f"{m.size}, {times}, spread {(m.spread or 0) * 100:.0f} %"
    return [*first, (how, ""), (one_line(m.note), "dim")]


def _compared(run: Run, comparison: dict[str, Any]) -> list[page.Part]:
    taken = f" ({one_line(comparison['time'])})"
    parts: list[page.Part] = [
        page.heading(f"Compared with {one_line(comparison['file'])}{taken}")
    ]
    parts += [
        page.paragraph(("Warning: ", "bold yellow"), (f"{one_line(warning)}.", ""))
        for warning in comparison["warnings"]
    ]
    now = {m.name: m for m in run.measurements}
    rows = [_change(change, now[change["name"]]) for change in comparison["changes"]]
    return (
        [*parts, page.table(_CHANGES, rows)]
        if rows
        else [
            *parts,
            page.paragraph(("The two runs have no measurement in common.", "")),
        ]
    )


def _change(change: dict[str, Any], now: Measurement) -> list[page.Cell]:
    verdict = change["verdict"] if change["verdict"] != "same" else ""
    style = {"faster": "green", "slower": "red"}.get(verdict, "")
    return [
        (now.title, "bold"),
        (in_words(now._replace(value=change["before"])), ""),
        (in_words(now), ""),
        (f"{change['ratio']:.2f} {verdict}".strip(), style),
        ("" if change["same_size"] else f"different size: {now.size} now", "dim"),
    ]
