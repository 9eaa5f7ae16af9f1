"""A report as Markdown, JSON and SARIF."""

import json

import pytest

from accel_simulated.detector import formats
from accel_simulated.detector.merge import Place, Report


def _report(status=1, allocated=None):
    """A report of two places and a question, in a file of the project and in one of a package."""
    places = [
        Place(
            "src/a b.py", 3, "call", "torch.cuda.f()", "cuda", "", "f(`x`) | g()", 4, "ValueError: <x|y>_z"
        ),
        Place("src/a b.py", 9, "ask", "torch.cuda.is_available()", "cuda", "", "", 2),
        Place(
            "accelerate/state.py", 1, "collective", 'init_process_group("nccl")', "cuda", "accelerate", "", 1
        ),
    ]  # fmt: skip
    in_source = [
        Place("src/a b.py", 5, "setting", "torch.backends.cudnn.benchmark", "cuda", "", "")
    ]  # fmt: skip
    return Report(
        ["pytest", "-k", "a b"],
        "acme:2",
        status,
        2,
        allocated,
        ["a note"],
        places,
        in_source,
    )


def _first_sentences(report):
    """What a Markdown report says below its title."""
    return formats.as_markdown(report).splitlines()[2]


FAILED = "The program failed (exit status 1): code after the failure was not recorded."


@pytest.mark.parametrize(
    ("status", "allocated", "outcome"),
    [
        (1, None, FAILED),
        (1, 0, f"{FAILED} Nothing was allocated on acme:2 (simulated)."),
        (1, 4096, f"{FAILED} Up to 4.0 KiB were allocated on acme:2 (simulated)."),
        (0, None, "The program ended without an error."),
        (0, 0, "The program ran on the CPU. Nothing was allocated on acme:2 (simulated)."),
        (0, 512, "The program ran on the CPU. Only 512 bytes were allocated on acme:2 (simulated)."),
        (0, 4096, "The program ran on acme:2 (simulated). Up to 4.0 KiB were allocated there."),
    ],
)  # fmt: skip
def test_a_report_begins_with_the_outcome(status, allocated, outcome):
    assert _first_sentences(_report(status, allocated)) == outcome


@pytest.mark.parametrize(
    ("status", "allocated", "meaning"),
    [
        (0, 4096, "The run recorded no code for one vendor's device."),
        (0, 0, "No source location was recorded, because no code for a device ran."),
        (0, None, "No source location was recorded, because no code for a device ran."),
        (1, 4096, "No source location was recorded before the program failed."),
    ],
)
def test_a_report_without_places_explains_why(status, allocated, meaning):
    empty = Report(["true"], "acme:2", status, allocated=allocated)
    assert f"\n\n{meaning}\n\n## Not listed\n" in formats.as_markdown(empty)


@pytest.mark.parametrize(
    ("status", "allocated", "simulated", "has_step"),
    [(1, 4096, "acme:2", True), (0, 0, "acme:2", True), (0, 4096, "acme:2", False), (1, 0, "cuda:2", False)],
)  # fmt: skip
def test_a_cuda_program_that_did_not_run_completely_gets_a_command_for_a_simulated_cuda(
    status, allocated, simulated, has_step
):
    report = _report(status, allocated)
    report.simulated = simulated
    step = "`accel simulate --report cuda.md cuda -- pytest -k 'a b'`"
    assert (step in formats.as_markdown(report)) is has_step


def test_markdown():
    markdown = formats.as_markdown(_report())
    assert (
        "To change: 2 places in 2 files. Device checks: 1 place in 1 file." in markdown
    )
    assert (
        "also name CUDA in 1 place in 1 file that the run did not record." in markdown
    )
    assert "| 5 | `torch.backends.cudnn.benchmark` | no counterpart" in markdown
    assert "Not recorded: a note." in markdown
    assert r"| `` f(`x`) \| g() `` |" in markdown
    assert r"| ValueError: \<x\|y\>\_z |" in markdown
    assert "| (this project) | 1 | 4 |" in markdown
    headings = [line for line in markdown.splitlines() if line.startswith("##")]
    assert headings == [
        "### src/a b.py", "### accelerate/state.py", "## Device checks", "### src/a b.py",
        "## In the source files", "### src/a b.py", "## Not listed",
    ]  # fmt: skip


def test_json():
    document = json.loads(formats.as_json(_report(1, 4096)))
    expected = {
        "schema": 1, "command": ["pytest", "-k", "a b"], "simulated": "acme:2", "status": 1,
        "complete": False, "allocated": 4096, "processes": 2, "notes": ["a note"],
    }  # fmt: skip
    assert {key: document[key] for key in expected} == expected
    assert document["outcome"].startswith(FAILED)
    places = [(p["file"], p["package"], p["times"]) for p in document["assumptions"]]
    assert places == [("src/a b.py", "", 4), ("accelerate/state.py", "accelerate", 1)]
    assert [place["line"] for place in document["asks"]] == [9]
    assert [(p["line"], p["times"]) for p in document["in_source"]] == [(5, 0)]


def test_sarif_has_what_code_scanning_requires():
    """SARIF 2.1.0 and GitHub's code scanning: the project's own files alone, by addresses."""
    sarif = json.loads(formats.as_sarif(_report()))
    assert sarif["version"] == "2.1.0"
    (run,) = sarif["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert [rule["id"] for rule in rules] == [
        "vendor-call",
        "vendor-setting",
        "vendor-ask",
    ]
    texts = ("shortDescription", "fullDescription", "help")
    assert all(rule[key]["text"] for rule in rules for key in texts)
    expected = [("warning", 3), ("note", 9), ("note", 5)]
    for result, (level, line) in zip(run["results"], expected, strict=True):
        (location,) = (each["physicalLocation"] for each in result["locations"])
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["level"], result["message"]["text"][-1]) == (level, ".")
        assert location["artifactLocation"]["uri"] == "src/a%20b.py"
        assert location["region"]["startLine"] == line


@pytest.mark.parametrize("status", [0, 1])
def test_sarif_contains_the_outcome_and_the_notes(status):
    (run,) = json.loads(formats.as_sarif(_report(status)))["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is (status == 0)
    messages = [
        each["message"]["text"] for each in invocation["toolExecutionNotifications"]
    ]
    assert messages == [_report(status).outcome, "Not recorded: a note."]
