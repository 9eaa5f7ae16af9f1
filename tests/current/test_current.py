"""One accelerator a process, whichever way it is asked for."""

import os

import pytest

import accel_core
from accel_core.errors import (
    BackendNotFoundError,
)


def test_the_first_call_chooses_and_every_other_gives_the_same_object(mlu):
    first = accel_core.get_accelerator()
    record = accel_core.selection()
    assert first.name == "mlu"
    assert accel_core.get_accelerator() is first
    assert accel_core.selection() is record
    assert record.name == "mlu"
    assert record.pid == os.getpid()


def test_the_record_can_be_asked_for_first(mlu):
    assert accel_core.selection().name == "mlu"
    assert accel_core.get_accelerator().name == "mlu"


def test_an_accelerator_that_was_made_for_a_name_is_the_one_that_is_chosen(mlu):
    made = accel_core.accelerator("mlu@accel-mlu")
    assert accel_core.get_accelerator() is made


def test_a_choice_that_fails_is_made_again(mlu, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "tpu")
    for _ in range(2):
        with pytest.raises(BackendNotFoundError):
            accel_core.get_accelerator()
    monkeypatch.setenv("DS_ACCELERATOR", "mlu")
    assert accel_core.get_accelerator().name == "mlu"
