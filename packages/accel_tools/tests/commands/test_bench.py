"""`accel bench`: what is asked, judged before anything is measured; page, JSON, comparison, picture."""

import io
import json
import os
import sys
from importlib.util import find_spec

import pytest
from accel_tests.bench_effort import TINY
from click.testing import CliRunner

from accel_core.builtin import CPU
from accel_core.cli import accel as app
from accel_tools.bench import document
from accel_tools.bench.document import Run
from accel_tools.bench.facts import device_facts, machine_facts
from accel_tools.bench.records import Measurement, Outcome
from accel_tools.cli.progress import Progress
from accel_tools.commands import bench

TORCH = pytest.mark.skipif(not find_spec("torch"), reason="what is measured is torch's")


def invoke(*arguments, **env):
    variables = {"COLUMNS": "80", **env}
    return CliRunner(env=variables).invoke(
        app, ["bench", *map(str, arguments)], prog_name="accel"
    )


# --- what is asked -------------------------------------------------------------------------------------


#: Arguments that cannot be served, and what the one error says; the files are in the folder of the test.
REFUSED = {
    "an earlier run that is not one": (
        ["--plot", "a.txt", "--compare", "broken.json"],
        "it is not the output of `accel bench --json`",
    ),
    "an earlier run that is not there": (
        ["--compare", "none.json"],
        "it cannot be read: No such file or directory",
    ),
    "an unknown kind of picture": (
        ["--plot", "plot.pdf"],
        "expected a name that ends in .svg, .png, .txt",
    ),
    "a picture without matplotlib": (
        ["--plot", "plot.svg"],
        "pip install 'accel-tools[plot]'",
    ),
    "a folder that is not there": (
        ["--plot", "none/plot.txt"],
        "cannot be written: No such file or directory",
    ),
    "no rank": (["--ranks", "0"], "0 is not in the range x>=1"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_served_is_one_error_before_anything_is_measured(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        bench, "find_spec", lambda name: None
    )  # matplotlib is not installed
    monkeypatch.setattr(
        bench, "answer_of", lambda *_, **__: pytest.fail("it began to measure")
    )
    (tmp_path / "broken.json").write_text('{"schema')
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.output.count("Error:") == 1
    assert message in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"], (
        "it left a file behind"
    )


def test_an_unknown_name_errs_as_info_does_and_torch_is_not_imported_before(accel):
    bench, info = (
        accel(command, "npuu", watched=frozenset({"torch"}))
        for command in ("bench", "info")
    )
    assert "no installed distribution declares npuu" in bench.stderr
    assert "accel bench npuu: " in bench.stderr
    as_info = bench.stderr.replace("accel bench", "accel info")
    assert (bench.returncode, bench.stdout, as_info) == (
        info.returncode,
        info.stdout,
        info.stderr,
    )
    wrong = accel("bench", "--plot", "plot.pdf", watched=frozenset({"torch"}))
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("loaded: []")
    assert (
        accel.json("bench", "npuu", status=2)["error"]["type"] == "BackendNotFoundError"
    )


SILENT = [
    (
        "device_count(self): return 0",
        "card has no device here, so there is nothing to measure. To see why: accel why card",
    ),
    (
        "current_device(self): raise OSError('wedged')",
        "card cannot list its devices: OSError: wedged. See: accel info card",
    ),
]


@pytest.mark.parametrize(("member", "message"), SILENT)
def test_a_backend_without_a_device_that_answers_is_told(accel, member, message):
    accel.install_card(more=f"def {member}")
    done = accel("bench", "card")
    assert done.returncode == 1
    assert f"Error: {message}" in done.stderr


# --- what is told --------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch, fresh, no_hardware):
    """`--quick` is of no effort at all; nothing is chosen yet."""
    monkeypatch.setattr(bench, "QUICK", TINY)


@pytest.fixture
def measured_once(tiny, monkeypatch, shared_by_workers):
    """Every `accel bench` reports one run, measured once for all tests that ask for this."""
    measure = bench._measure

    def measure_once(settings, name, ranks, *, quick):
        kept = shared_by_workers(
            "bench",
            lambda: document.to_dict(measure(settings, name, ranks, quick=quick)),
        )
        return document.of_dict(kept)

    monkeypatch.setattr(bench, "_measure", measure_once)


QUICKLY = ("cpu", "--quick", "--ranks", "1")


@pytest.fixture
def found(measured_once):
    """What `accel bench --json` prints."""
    done = invoke(*QUICKLY, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@TORCH
def test_json_names_the_document_the_device_and_the_machine(found):
    assert found["document"] == "accel bench"
    assert found["schema"] == 1
    assert found["quick"] is True
    assert found["accelerator"]["name"] == "cpu"
    assert found["accelerator"]["device"] == "cpu"
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["cpu"]


@TORCH
def test_json_has_each_measurement_with_its_outcome(found):
    by_name = {each["name"]: each for each in found["measurements"]}
    assert by_name["copy.on_device"]["outcome"] == "measured"
    assert by_name["copy.on_device"]["value"] > 0
    assert found["measurements"][0]["outcome"] == "not measured"


@pytest.fixture
def earlier(found, tmp_path):
    """The file of an earlier run on another processor, whose launches were far quicker."""
    (launch,) = (
        each for each in found["measurements"] if each["name"] == "launch.queued"
    )
    launch["value"] = 1e-12
    found["machine"]["cpu"] = "Another\x1b[31m"
    file = tmp_path / "old.json"
    file.write_text(json.dumps(found))
    return file


@pytest.fixture
def compared(earlier):
    """The page that compares this run with the earlier one."""
    done = invoke(*QUICKLY, "--compare", earlier)
    assert done.exit_code == 0, done.output
    return done.stdout


@TORCH
def test_a_page_with_a_comparison_fits_80_columns(compared):
    assert max(map(len, compared.splitlines())) <= 80


@TORCH
def test_a_comparison_warns_of_another_processor_and_escapes_its_name(compared):
    assert "Warning: the processor was Another\\x1b[31m and is" in compared


@TORCH
def test_a_comparison_marks_what_became_slower(compared):
    (changed,) = (
        line
        for line in compared.splitlines()
        if line.startswith("launch, in a row") and "0.00 ns" in line
    )
    assert changed.endswith("slower")


@TORCH
def test_the_picture_of_a_comparison_shows_the_earlier_value(earlier, tmp_path):
    plot = tmp_path / "plot.txt"
    done = invoke(*QUICKLY, "--compare", earlier, "--plot", plot)
    assert done.exit_code == 0, done.output
    assert "before 0.00 ns" in plot.read_text()


@TORCH
def test_json_has_the_comparison(earlier):
    done = invoke(*QUICKLY, "--compare", earlier, "--json")
    assert done.exit_code == 0, done.output
    comparison = json.loads(done.stdout)["comparison"]
    assert len(comparison["warnings"]) == 1
    (change,) = (
        each for each in comparison["changes"] if each["name"] == "launch.queued"
    )
    assert change["verdict"] == "slower"
    assert change["same_size"]


ROWS = [
    Measurement(
        "copy.on_device", "on the device", "B/s", Outcome.MEASURED, value=1e9, best=1e9, spread=0.1,
        repeats=5, calls=20, seconds=0.1, work=1e8, size="128 MiB",
    ),
    Measurement("matrix.float32", "matrix float32", "FLOP/s", Outcome.WRONG, reason="it is not right"),
    Measurement("collective.broadcast", "broadcast", "B/s", Outcome.NOT_MEASURED, reason="no way\x07 " * 30),
]  # fmt: skip


@TORCH
@pytest.mark.usefixtures("tiny")
def test_what_came_out_wrong_ends_with_status_1_at_any_width(monkeypatch):
    from accel_core.interface.cpu import CPUAccelerator

    device = device_facts(CPUAccelerator(CPU))
    run = Run(
        "2026-01-02T03:04:05+00:00", 1.0, True, machine_facts(), device, tuple(ROWS)
    )
    monkeypatch.setattr(bench, "_measure", lambda *_, **__: run)
    for columns in ("0", "1", "40", "60", "80", "160"):
        done = invoke("cpu", COLUMNS=columns)
        assert done.exit_code == 1
        text = " ".join(done.stdout.split())
        assert "wrong: it is not right" in text
        assert "128 MiB, 5 x 20 times, spread 10 %" in text
        assert "\x07" not in text
        if columns != "0":
            assert max(map(len, done.stdout.splitlines())) <= max(40, int(columns))


# --- progress ------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn."""

    isatty = fileno = lambda self: True


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is drawn on Windows")
def test_progress_is_one_line_that_goes_away(monkeypatch):
    def drawn(columns, term="xterm"):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setattr(
            os, "get_terminal_size", lambda number: os.terminal_size((columns, 24))
        )
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        with Progress(2) as progress:
            progress.show("a long one")
            progress.show("short")
        return terminal.getvalue()

    first, wipe = "a long one, 1 of 2 ...", "\r\x1b[K"
    assert drawn(80) == f"{wipe}{first}{wipe}short, 2 of 2 ...{wipe}"
    assert drawn(0).startswith(f"{wipe}{first}\r")  # it does not know: 80
    assert max(map(len, drawn(10).split(wipe))) == 9
    assert drawn(80, term="dumb") == ""


def test_progress_needs_no_terminal(monkeypatch, capsys):
    for stream in (sys.stderr, None):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress(1) as progress:
            progress.show("anything")
    assert capsys.readouterr().err == ""
