"""`accel simulate --report`: each place of a program that is written for a vendor, once, with its count."""

import json
import re
import shutil
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

from accel_simulated.detector.merge import merge

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator: its detector of vendors' names"
)


def _expected(program):
    """The places in the comments of a program, by line, kind and code."""
    source = program.read_text()
    found = {}
    for number, line in enumerate(source.splitlines(), 1):
        for comment in filter(None, line.partition("  # ")[2].split(" & ")):
            kind, what, times, raises = re.fullmatch(
                r"(\S+) (.*?)(?: (\d+))?( !)?", comment
            ).groups()
            found[number, kind, what] = int(times or 1), bool(raises)
    return found


def test_every_format_lists_each_place_of_all_processes_once(tmp_path, built):
    built("acme")
    program = tmp_path / "program.py"
    shutil.copy(PROGRAMS / "detected_everything.py", program)
    shutil.copy(PROGRAMS / "detected_child.py", tmp_path / "child.py")
    reports = [tmp_path / f"cuda.{ending}" for ending in ("json", "md", "sarif")]
    options = [word for report in reports for word in ("--report", report.name)]
    words = [
        "-m",
        "accel_core",
        "simulate",
        *options,
        "acme",
        "--",
        "python",
        "program.py",
        "child.py",
    ]
    ended = run_python(words, clean_environment(), cwd=tmp_path)
    assert ended.returncode == 3, ended.stdout + ended.stderr

    told = json.loads(reports[0].read_text())
    places = [
        place
        for place in told["assumptions"] + told["asks"]
        if place["file"] == "program.py"
    ]
    expected = _expected(PROGRAMS / "detected_everything.py")
    found = {
        (p["line"], p["kind"], p["what"]): (p["times"], bool(p["raised"]))
        for p in places
    }
    assert found == expected
    assert (told["status"], told["simulated"], told["notes"]) == (3, "acme:2", [])
    # The program, its child, its worker, and what it forked.
    assert told["processes"] == 4
    of_child = [
        (p["file"], p["what"])
        for p in told["asks"] + told["assumptions"]
        if p not in places
    ]
    assert of_child == [("child.py", "CUDA_VISIBLE_DEVICES read")]
    assert all(p["kind"] != "ask" for p in told["assumptions"])
    assert {p["kind"] for p in told["asks"]} == {"ask"}
    times = [
        place["times"] for place in told["assumptions"] if place["file"] == "program.py"
    ]
    assert times == sorted(times, reverse=True)

    markdown = reports[1].read_text()
    assert (
        markdown.count(
            "| `torch.cuda.empty_cache()` | `acc.empty_cache()`; or `torch.accelerator.em"
        )
        == 3
    )
    assert "| AssertionError: Torch not compiled with CUDA enabled |" in markdown
    (run,) = json.loads(reports[2].read_text())["runs"]
    # Uses by which nothing is called.
    in_source = [place["what"] for place in told["in_source"]]
    assert sorted(in_source) == [
        "torch.cuda.empty_cache.__module__",
        "torch.cuda.is_available",
        "torch.cuda.memory.__name__",
        "torch.cuda.synchronize",
        "torch.has_cuda",
    ]
    assert len(run["results"]) == len(found) + len(of_child) + len(in_source)


def _report(tmp_path, device, program, *, status=0):
    """Run a program on a simulated device, and return its report, with the Markdown's first sentences."""
    if isinstance(program, Path):
        program = program.read_text()
    (tmp_path / "program.py").write_text(program)
    words = ["-m", "accel_core", "simulate", "--report", "a.md", "--report", "a.json"]
    words += [device, "--", "python", "program.py"]
    ended = run_python(words, clean_environment(), cwd=tmp_path)
    assert ended.returncode == status, ended.stdout + ended.stderr
    document = json.loads((tmp_path / "a.json").read_text())
    first = (tmp_path / "a.md").read_text().splitlines()[2]
    return document, first


def _places(document):
    """What the report lists of the program, as `_expected` gives it."""
    return {
        (place["line"], place["kind"], place["what"]): (
            place["times"],
            bool(place["raised"]),
        )
        for place in document["assumptions"] + document["asks"]
        if place["file"] == "program.py"
    }


@pytest.mark.parametrize(
    ("program", "status", "places"),
    [
        ("import no_such_module", 1, []),
        ("import torch\ntorch.cuda.init()\n", 1, [2]),
        (
            "import os, torch\ntorch.cuda.empty_cache()\nos.kill(os.getpid(), 9)\n",
            137,
            [2],
        ),
    ],
)
def test_a_program_that_fails_has_the_places_up_to_the_failure(
    tmp_path, built, program, status, places
):
    built("acme")
    document, first = _report(tmp_path, "acme", program, status=status)
    assert first.startswith(f"The program failed (exit status {status}): ")
    assert document["complete"] is False
    assert [place["line"] for place in document["assumptions"]] == places


def test_a_program_that_ran_on_the_cpu_is_reported_as_such(tmp_path, built):
    built("acme")
    program = (
        'import torch\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\n'
        "torch.nn.Linear(2, 2, device=device)\n"
    )
    document, first = _report(tmp_path, "acme", program)
    expected = (
        "The program ran on the CPU. Nothing was allocated on acme:2 (simulated)."
    )
    assert (first, document["allocated"]) == (expected, 0)
    assert [place["what"] for place in document["asks"]] == [
        "torch.cuda.is_available()"
    ]


#: Only the worker uses the device.
WORKER = """
import torch, multiprocessing
def work():
    torch.ones(1000, device=torch.accelerator.current_accelerator())
if __name__ == "__main__":
    worker = multiprocessing.get_context("{}").Process(target=work)
    worker.start()
    worker.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_device_memory_of_a_worker_is_reported(tmp_path, built, method):
    built("acme")
    document, first = _report(tmp_path, "acme", WORKER.format(method))
    assert document["allocated"] > 4000
    assert first.startswith("The program ran on acme:2 (simulated).")


def test_functions_that_few_devices_support_are_recorded(tmp_path, built):
    built("acme")
    document, _ = _report(tmp_path, "acme", PROGRAMS / "detected_limited.py")
    assert _places(document) == _expected(PROGRAMS / "detected_limited.py")


@pytest.mark.parametrize(
    "program",
    [PROGRAMS / "detected_on_cuda.py", PROGRAMS / "detected_portable.py"],
    ids=["cuda", "all"],
)
def test_a_whole_run_on_a_simulated_cuda(tmp_path, built, program):
    built("cuda")
    document, first = _report(tmp_path, "cuda", program)
    assert first.startswith("The program ran on cuda:2 (simulated).")
    assert _places(document) == _expected(program)
    # Each name of CUDA in the source is part of a place that the run recorded.
    assert document["in_source"] == []


def test_code_that_a_run_cannot_show_is_read_from_the_source(tmp_path, built):
    built("cuda")
    program = PROGRAMS / "detected_in_source.py"
    document, _ = _report(tmp_path, "cuda", program)
    found = {(p["line"], p["kind"], p["what"]) for p in document["in_source"]}
    assert found == set(_expected(program))
    recorded_lines = {p["line"] for p in document["assumptions"] + document["asks"]}
    assert recorded_lines.isdisjoint(line for line, _, _ in found)


def test_a_torch_that_bypasses_the_detector_is_noted(tmp_path, simulated):
    """Because its library is missing, as it is for a run without `accel simulate --report`."""
    variables = {"ACCEL_SIMULATE_RECORD": str(tmp_path)}
    simulated("acme", "import torch; torch.device('cuda')", environ=variables)
    report = merge(tmp_path, tmp_path, [], "acme:2", 0)
    assert (report.places, report.processes, len(report.notes)) == ([], 1, 1)
    assert report.notes[0].startswith("device strings, which torch ")
