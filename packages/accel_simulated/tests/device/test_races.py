"""With ACCEL_SIMULATE_RACE=1 a missing wait between streams changes the values and gives a warning."""

from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAM = Path(__file__).with_name("programs") / "stream_races.py"


class Expected(NamedTuple):
    """What a case of the program gives while missing waits are detected."""

    value: str
    #: Part of the warning, which names both operators; empty if no wait is missing.
    warning: str = ""


ONES, TWOS = "[1.0, 1.0, 1.0, 1.0]", "[2.0, 2.0, 2.0, 2.0]"
NANS = "[nan, nan, nan, nan]"
CASES = {
    "read back": Expected(NANS, "aten::resolve_conj reads pinned memory"),
    "item": Expected("nan", "aten::item reads pinned memory"),
    "numpy": Expected(NANS, "aten::resolve_conj reads pinned memory"),
    "read back, waited": Expected(ONES),
    "read back, polled": Expected(ONES),
    "twice and back": Expected(TWOS),
    "on another stream": Expected(NANS, "aten::copy_ reads pinned memory"),
    "no wait": Expected("nan", "aten::sum reads what aten::mul wrote"),
    "wait_stream": Expected("8.0"),
    "synchronize": Expected("8.0"),
    "the device's": Expected("8.0"),
    "wait_event": Expected("8.0"),
    "to the host": Expected(NANS, "aten::copy_ reads what aten::mul wrote"),
    "no wait before": Expected(NANS, "aten::mul reads what aten::fill_ wrote"),
    "written over": Expected(f"[{TWOS}, {TWOS}]", "aten::add_ writes what aten::mul reads"),
    "both write": Expected(TWOS, "aten::add_ writes what aten::mul wrote"),
    "given back": Expected(TWOS, "aten::zero_ writes what aten::mul reads"),
    "recorded": Expected(TWOS),
    "two parts": Expected("[2.0, 2.0, 1.0, 1.0]"),
    "backward": Expected("[3.0, 3.0, 3.0, 3.0]"),
    "another device": Expected(TWOS),
}  # fmt: skip


@pytest.fixture(scope="session")
def detected(simulated, shared_by_workers):
    """The value and the warnings of each case, of one process that detects missing waits."""
    environ = {"ACCEL_SIMULATE_RACE": "1"}
    return shared_by_workers(
        "races", lambda: simulated("acme", PROGRAM, "acme", environ=environ).answer
    )


def test_each_case_of_the_program_is_expected(detected):
    assert detected.keys() == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_a_missing_wait_changes_the_value(detected, case):
    assert detected[case]["value"] == CASES[case].value


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].warning])
def test_a_missing_wait_gives_one_warning_with_the_operators_and_the_remedy(
    detected, case
):
    (warning,) = detected[case]["warnings"]
    assert CASES[case].warning in warning
    assert "ACCEL_SIMULATE_RACE=1" in warning
    assert "synchronize" in warning.lower()


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case].warning])
def test_without_a_missing_wait_there_is_no_warning(detected, case):
    assert detected[case]["warnings"] == []


def test_memory_that_is_reused_too_early_is_explained_by_record_stream(detected):
    (warning,) = detected["given back"]["warnings"]
    assert "record_stream before the tensor goes" in warning


def test_another_value_of_the_variable_is_rejected(simulated):
    run = simulated(
        "acme", "import torch", environ={"ACCEL_SIMULATE_RACE": "yes"}, check=False
    )
    assert run.ended[0].returncode != 0
    assert (
        "ACCEL_SIMULATE_RACE='yes': expected 1, to detect missing waits between streams, or 0"
        in run.ended[0].stderr
    )


@pytest.mark.parametrize(
    ("case", "value"), [("no wait", "8.0"), ("both write", "[3.0, 3.0, 3.0, 3.0]")]
)
def test_without_the_variable_missing_waits_change_nothing(
    simulated, shared_by_workers, case, value
):
    results = shared_by_workers(
        "no-races", lambda: simulated("acme", PROGRAM, "acme").answer
    )
    assert results[case] == {"value": value, "warnings": []}
