"""An adapter that fails warns once, and does not fail the import of the framework."""

import warnings

import pytest

from accel_train.integrations._warned import errors_as_warning


def test_an_error_becomes_one_warning_and_no_error_where_warnings_are():
    with pytest.warns(RuntimeWarning) as seen:  # noqa: PT031
        warnings.simplefilter("error")
        with errors_as_warning("verl", "See why: accel why"):
            raise ValueError("no device.")
    assert [str(one.message) for one in seen] == [
        "verl cannot use accel's accelerator: ValueError: no device. See why: accel why"
    ]
