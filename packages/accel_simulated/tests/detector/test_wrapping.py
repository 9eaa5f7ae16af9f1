"""Errors as the report shows them."""

import pytest

from accel_simulated.detector.wrapping import format_error


@pytest.mark.parametrize("message", ["out of memory\nat 1", "out of memory\r\nat 1"])
def test_an_error_is_shown_in_one_line(message):
    assert format_error("RuntimeError", message) == "RuntimeError: out of memory"


def test_an_error_without_a_message_is_shown_by_its_type():
    assert format_error("RuntimeError", "") == "RuntimeError: "
