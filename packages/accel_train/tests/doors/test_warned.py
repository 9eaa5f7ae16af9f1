"""A door that stays shut says so once, and ends nobody's import."""

import sys
import warnings
from types import ModuleType

import pytest

import accel_core
from accel_train.doors._warned import warned
from accel_train.doors.bitsandbytes import register


def test_an_error_becomes_one_warning_and_no_error_where_warnings_are():
    with pytest.warns(RuntimeWarning) as seen:  # noqa: PT031
        warnings.simplefilter("error")
        with warned("verl", "See why: accel why"):
            raise ValueError("no device.")
    assert [str(one.message) for one in seen] == [
        "verl cannot use accel's accelerator: ValueError: no device. See why: accel why"
    ]


def test_bitsandbytes_is_imported_without_a_choice(monkeypatch):
    module = ModuleType("bitsandbytes")
    module.supported_torch_devices = {"acme"}
    monkeypatch.setitem(sys.modules, "bitsandbytes", module)
    register()
    assert "supported_torch_devices" not in vars(module)
    with accel_core.use_accelerator("cpu"):
        assert module.supported_torch_devices == {"acme", "cpu"}
