"""Steps of a choice are logged, and a choice in a choice is an error."""

import logging

import pytest

from accel_core.errors import RecursiveChoiceError
from accel_core.sandbox import guard


def test_steps_are_logged_and_reach_the_listener_of_the_block(caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    steps = []
    with guard.steps_sent_to(steps.append):
        guard.log_step("importing torch_acme")
    guard.log_step("device_count()")
    assert steps == [guard.Step("importing torch_acme", guard.CodeOwner.VENDOR)]
    assert guard.current_step.get().text == "device_count()"
    assert caplog.messages == ["importing torch_acme", "device_count()"]


def test_a_selection_in_a_selection_is_an_error():
    with (
        guard.selection_in_progress(),
        pytest.raises(
            RecursiveChoiceError, match="while the accelerator was being chosen"
        ),
        guard.selection_in_progress(),
    ):
        pass
    with guard.selection_in_progress():
        pass
