"""`pytest --accel`: a run on each device, the fixtures, the mark, the table; and what is wrong with it."""

import re
import shutil
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

PROGRAMS = Path(__file__).with_name("programs")


def test_tests_run_on_each_device_and_a_table_compares_the_runs(tmp_path, built):
    built("acme")
    shutil.copy(PROGRAMS / "accel_option_tests.py", tmp_path / "test_it.py")
    words = [
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--accel=acme:3,plain",
        str(tmp_path),
    ]
    ended = run_python(words, clean_environment())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    table = [line.split() for line in ended.stdout.splitlines()[-3:]]
    assert table[0] == [
        "simulated",
        "passed",
        "failed",
        "error",
        "skipped",
        "seconds",
        "status",
    ]
    assert [(row[:5], row[6]) for row in table[1:]] == [
        (["acme:3", "2", "0", "0", "2"], "0"), (["plain", "1", "1", "0", "2"], "1"),
    ]  # fmt: skip
    lines = ended.stdout.splitlines()
    assert [line for line in lines if line.startswith("---")] == [
        "--- on simulated acme:3", "--- on simulated plain",
    ]  # fmt: skip
    failing = lines[lines.index("fails on some only:") + 1 : -4]
    assert [line.partition("::")[2] for line in failing] == [
        "test_that_fails: on plain"
    ]
    assert "only for plain, but the accelerator is acme" in ended.stdout
    assert "only for acme, but the accelerator is plain" in ended.stdout
    assert "needs 4 acme devices, but the machine has 3" in ended.stdout


@pytest.mark.nightly(reason="starts pytest for each message of an option")
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("acmee", "the device 'acmee': 'acmee' cannot be simulated; .* mean acme\\?"),
        # Before any of them runs.
        (
            "plain,acme:0",
            "the device 'acme:0': '0' is not a valid number of devices; .* Write acme:2\\.",
        ),
        (", ", "the device ', ': ',' cannot be simulated"),
        (
            "cuda",
            "cuda: this process already simulates acme:2, because ACCEL_SIMULATE is set\\. Unset",
        ),
    ],
)
def test_an_invalid_option_is_rejected(wanted, said, tmp_path):
    variables = clean_environment() | (
        {"ACCEL_SIMULATE": "acme"} if wanted == "cuda" else {}
    )
    ended = run_python(["-m", "pytest", "--accel", wanted, str(tmp_path)], variables)
    assert (ended.returncode, ended.stdout) == (4, "")
    assert re.match(f"ERROR: --accel:? {said}", ended.stderr)


@pytest.mark.nightly(reason="starts pytest for an option beside a variable")
def test_an_option_without_a_count_accepts_the_device_that_is_simulated(tmp_path):
    """It stands in the settings of a project, which is run under `accel simulate acme:3` too."""
    variables = clean_environment() | {"ACCEL_SIMULATE": "acme:3"}
    ended = run_python(["-m", "pytest", "--accel", "acme", str(tmp_path)], variables)
    assert (ended.returncode, ended.stderr) == (5, "")  # there are no tests
