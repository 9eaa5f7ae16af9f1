"""Whether a device without a declaration supports float16 is found by a trial."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "float16_while_full.py"


@pytest.fixture(scope="session")
def answers(simulated, shared_by_workers):
    """The answers and warnings of one process, by the state of the device's memory."""
    return shared_by_workers("float16", lambda: simulated("acme", PROGRAM).answer)


def test_a_trial_without_memory_fails_with_a_warning_that_names_the_cause(answers):
    assert answers["while full"]["supported"] is False
    warning = answers["while full"]["warnings"][0]
    assert "acme" in warning or "generic" in warning
    assert "the trial of" in warning
    assert "OutOfMemoryError" in warning
    assert "ACCEL_SIMULATE_MEMORY_MB=" in warning


def test_the_trial_is_repeated_when_there_is_memory(answers):
    assert answers["with memory"] == {"supported": True, "warnings": []}


def test_a_successful_trial_is_not_repeated(answers):
    assert answers["full again"] == {"supported": True, "warnings": []}
