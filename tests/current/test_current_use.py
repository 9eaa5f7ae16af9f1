"""A program sets the accelerator, or uses another for a block."""

from __future__ import annotations

import signal

import pytest

import accel_core
from accel_core import current
from accel_core.detection import How
from accel_core.errors import BackendNotFoundError, InvalidAcceleratorError


def test_set_by_name_by_object_and_back(mlu):
    cpu = accel_core.accelerator("cpu")
    accel_core.set_accelerator("cpu")
    assert accel_core.get_accelerator() is cpu
    assert (accel_core.selection().chosen, accel_core.selection().how) == ("cpu", How.SET)
    assert "cpu (accel-core" in str(accel_core.selection())
    assert "set by the program" in str(accel_core.selection())
    accel_core.set_accelerator(accel_core.accelerator("mlu"))
    assert accel_core.get_accelerator().name == "mlu"
    accel_core.set_accelerator(None)
    assert accel_core.selection().how is How.RANKED


@pytest.mark.parametrize("wrong", [5, "CPUAccelerator()", object(), type])
def test_what_is_no_accelerator_is_refused(mlu, wrong):
    before = accel_core.get_accelerator()
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)):
        accel_core.set_accelerator(wrong)
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)), accel_core.use_accelerator(wrong):
        pass
    assert accel_core.get_accelerator() is before


def test_what_is_no_accelerator_is_named(mlu):
    with pytest.raises(InvalidAcceleratorError) as caught:
        accel_core.set_accelerator(5)
    assert (
        str(caught.value)
        == "5 (int) is not an accelerator: expected an accel_core.Accelerator or a backend's name"
    )
    assert isinstance(caught.value, TypeError)


def test_use_is_for_the_block_and_nests(mlu):
    outer = accel_core.get_accelerator()
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        with accel_core.use_accelerator(outer):
            assert accel_core.get_accelerator() is outer
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator() is outer
    assert current._fast is outer


def test_use_ends_with_an_exception_too(mlu):
    outer = accel_core.get_accelerator()
    with pytest.raises(ZeroDivisionError), accel_core.use_accelerator("cpu"):
        raise ZeroDivisionError
    assert accel_core.get_accelerator() is outer
    assert current._fast is outer


def test_use_before_any_choice_chooses_nothing(mlu):
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        assert current._chosen is None
        assert accel_core.selection().chosen == "mlu"  # the record is of the process's choice
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator().name == "mlu"


def test_set_inside_use_counts_after_it(mlu):
    accel_core.get_accelerator()
    with accel_core.use_accelerator("mlu") as inner:
        accel_core.set_accelerator("cpu")
        assert accel_core.get_accelerator() is inner
    assert accel_core.get_accelerator().name == "cpu"


def test_a_block_that_is_interrupted_as_it_begins_is_not_in_force(mlu, monkeypatch):
    interrupted = type("Interrupted", (set,), {"add": lambda *_: signal.raise_signal(signal.SIGINT)})
    monkeypatch.setattr(current, "_overrides", interrupted())
    with pytest.raises(KeyboardInterrupt), accel_core.use_accelerator("cpu"):
        pass
    assert (accel_core.get_accelerator().name, current._overrides) == ("mlu", set())
