"""`accel bench`: its page, its JSON, its comparison and its picture."""

import json
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
from accel_tools.commands import bench

TORCH = pytest.mark.skipif(not find_spec("torch"), reason="what is measured is torch's")


def invoke(*arguments, **env):
    variables = {"COLUMNS": "80", **env}
    return CliRunner(env=variables).invoke(
        app, ["bench", *map(str, arguments)], prog_name="accel"
    )


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
            lambda: document.run_to_dict(measure(settings, name, ranks, quick=quick)),
        )
        return document.run_from_dict(kept)

    monkeypatch.setattr(bench, "_measure", measure_once)


QUICKLY = ("cpu", "--quick", "--ranks", "1")


@pytest.fixture
def printed(measured_once):
    """The document that `accel bench --json` prints."""
    done = invoke(*QUICKLY, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@TORCH
def test_json_names_the_document_the_device_and_the_machine(printed):
    assert printed["document"] == "accel bench"
    assert printed["schema"] == 1
    assert printed["quick"] is True
    assert printed["accelerator"]["name"] == "cpu"
    assert printed["accelerator"]["device"] == "cpu"
    assert printed["machine"]["cores"] >= 1
    assert printed["machine"]["cpu"]


@TORCH
def test_json_has_each_measurement_with_its_outcome(printed):
    by_name = {each["name"]: each for each in printed["measurements"]}
    assert by_name["copy.on_device"]["outcome"] == "measured"
    assert by_name["copy.on_device"]["value"] > 0
    assert printed["measurements"][0]["outcome"] == "not measured"


@pytest.fixture
def earlier(printed, tmp_path):
    """The file of an earlier run on another processor, whose launches were far quicker."""
    (launch,) = (
        each for each in printed["measurements"] if each["name"] == "launch.queued"
    )
    launch["value"] = 1e-12
    printed["machine"]["cpu"] = "Another\x1b[31m"
    file = tmp_path / "old.json"
    file.write_text(json.dumps(printed))
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
    assert (
        "Warning: the CPU was Another\\x1b[31m in the earlier run, but is" in compared
    )


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
@pytest.mark.parametrize("columns", [0, 1, 40, 60, 80, 160])
def test_a_wrong_result_is_told_with_status_1_at_any_width(monkeypatch, columns):
    from accel_core.interface.cpu import CPUAccelerator

    device = device_facts(CPUAccelerator(CPU))
    run = Run(
        "2026-01-02T03:04:05+00:00", 1.0, True, machine_facts(), device, tuple(ROWS)
    )
    monkeypatch.setattr(bench, "_measure", lambda *_, **__: run)
    done = invoke("cpu", COLUMNS=str(columns))
    assert done.exit_code == 1
    text = " ".join(done.stdout.split())
    assert "wrong: it is not right" in text
    assert "128 MiB, 5 x 20 times, spread 10 %" in text
    assert "\x07" not in text
    if columns != 0:
        assert max(map(len, done.stdout.splitlines())) <= max(40, columns)
