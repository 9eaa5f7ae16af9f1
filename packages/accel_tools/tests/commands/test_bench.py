"""`accel bench`: what is asked, judged before anything is measured; page, JSON, comparison, picture."""

import io
import json
import os
import sys
from importlib.util import find_spec

import pytest
from accel_tests.bench_effort import TINY
from click.testing import CliRunner

from accel_core.cli import accel as app
from accel_core.detection.discovery import CPU
from accel_core.toolkit import vendors
from accel_tools.bench.document import Run
from accel_tools.bench.facts import device_facts, machine_facts
from accel_tools.bench.records import Measurement, Outcome
from accel_tools.cli.progress import Progress
from accel_tools.commands import bench

TORCH = pytest.mark.skipif(not find_spec("torch"), reason="what is measured is torch's")


def invoke(*arguments, **env):
    variables = {"COLUMNS": "80", **env}
    return CliRunner(env=variables).invoke(app, ["bench", *map(str, arguments)], prog_name="accel")


# --- what is asked -------------------------------------------------------------------------------------


def test_what_cannot_be_done_is_one_error_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(bench, "answer_of", lambda *_, **__: pytest.fail("it began to measure"))
    broken = tmp_path / "old.json"
    broken.write_text('{"schema')
    for arguments, message in (
        (["--plot", tmp_path / "a.txt", "--compare", broken], "it is not the output of `accel bench --json`"),
        (["--compare", tmp_path / "none.json"], "it cannot be read: No such file or directory"),
        (["--plot", tmp_path / "plot.pdf"], "expected a name that ends in .svg, .png, .txt"),
        (["--plot", tmp_path / "plot.svg"], vendors.sourced("pip install 'accel-tools[plot]'")),
        (["--plot", tmp_path / "none" / "plot.txt"], "cannot be written: No such file or directory"),
        (["--ranks", "0"], "0 is not in the range x>=1"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 2, done.output
        assert done.output.count("Error:") == 1
        assert message in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json"]


def test_an_unknown_name_errs_as_info_does_and_torch_is_not_imported_before(accel):
    bench, info = (accel(command, "npuu", watched=frozenset({"torch"})) for command in ("bench", "info"))
    assert "no installed distribution declares npuu" in bench.stderr
    assert "accel bench npuu: " in bench.stderr
    as_info = bench.stderr.replace("accel bench", "accel info")
    assert (bench.returncode, bench.stdout, as_info) == (info.returncode, info.stdout, info.stderr)
    wrong = accel("bench", "--plot", "plot.pdf", watched=frozenset({"torch"}))
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("loaded: []")
    assert accel.json("bench", "npuu", status=2)["error"]["type"] == "BackendNotFoundError"


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


@TORCH
@pytest.mark.usefixtures("tiny")
def test_json_the_page_the_comparison_and_the_picture(tmp_path, monkeypatch):
    real, runs = bench._measure, []
    monkeypatch.setattr(
        bench, "_measure", lambda *a, **k: runs[0] if runs else runs.append(real(*a, **k)) or runs[0]
    )
    done = invoke("cpu", "--quick", "--ranks", "1", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["document"], found["schema"], found["quick"]) == ("accel bench", 1, True)
    assert (found["accelerator"]["name"], found["accelerator"]["device"]) == ("cpu", "cpu")
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["cpu"]
    by_name = {m["name"]: m for m in found["measurements"]}
    assert by_name["copy.on_device"]["value"] > 0
    assert by_name["copy.on_device"]["outcome"] == "measured"
    assert found["measurements"][0]["outcome"] == "not measured"

    by_name["launch.queued"]["value"] = 1e-12
    found["machine"]["cpu"] = "Another\x1b[31m"
    old, plot = tmp_path / "old.json", tmp_path / "plot.txt"
    old.write_text(json.dumps(found))
    asked = ["cpu", "--quick", "--ranks", "1", "--compare", old, "--plot", plot]
    done = invoke(*asked)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Warning: the processor was Another\\x1b[31m and is" in done.stdout
    (changed,) = [line for line in lines if line.startswith("launch, in a row") and "0.00 ns" in line]
    assert changed.endswith("slower")
    assert "before 0.00 ns" in plot.read_text()

    compared = json.loads(invoke(*asked, "--json").stdout)["comparison"]
    assert len(compared["warnings"]) == 1
    change = next(c for c in compared["changes"] if c["name"] == "launch.queued")
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
    from accel_core.accelerators.cpu import CPUAccelerator

    device = device_facts(CPUAccelerator(CPU))
    run = Run("2026-01-02T03:04:05+00:00", 1.0, True, machine_facts(), device, tuple(ROWS))
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
        monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((columns, 24)))
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
