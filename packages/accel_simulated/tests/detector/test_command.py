"""The option `--report` of `accel simulate`."""

import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from accel_core.cli import accel
from accel_simulated.detector import command

FAILED = "The program failed (exit status 1): code after the failure was not recorded."


def test_the_last_line_of_a_run_names_the_failure_and_the_report(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing.so").touch()
    library = tmp_path / "nothing.so"
    monkeypatch.setattr(command.device_strings, "build", lambda: library)
    words = [sys.executable, "-c", "import no_such_module"]
    environ = {**os.environ, "ACCEL_SIMULATE": "acme:2"}
    assert command.run_and_report(words, environ, ["a.md"], words) == 1
    assert FAILED in Path("a.md").read_text()
    counts = "0 places to change, 0 that only check for a device, 0 found only in the source files"
    expected = f"accel simulate: {FAILED} {counts}. Written: a.md"
    assert capfd.readouterr().err.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("cuda.txt", r"'cuda.txt': the file's suffix .*\.md, \.json, \.sarif.* Write --report cuda\.md"),
        ("cuda", r"must be one of"),
        ("no/such/a.md", r"'no/such/a.md': the file cannot be written: No such file or directory\. Choose"),
        ("folder.md", r"the file cannot be written: Is a directory"),
    ],
)  # fmt: skip
def test_a_report_that_cannot_be_written_is_rejected_before_the_run(
    report, said, tmp_path, monkeypatch
):
    """Said before the command runs; and nothing is left."""
    monkeypatch.chdir(tmp_path)
    Path("folder.md").mkdir()
    words = [
        "simulate",
        "--report",
        "good.md",
        "--report",
        report,
        "acme",
        "--",
        "touch",
        "ran",
    ]
    done = CliRunner().invoke(accel, words)
    assert done.exit_code == 2
    assert re.search(said, done.stderr), done.stderr
    assert os.listdir() == ["folder.md"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["acme"], "Missing a command"),
        (["--list"], "--list or --build, which run no command"),
    ],
)
def test_reports_need_a_command(words, said):
    done = CliRunner().invoke(accel, ["simulate", "--report", "cuda.md", *words])
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert not Path("cuda.md").exists()
