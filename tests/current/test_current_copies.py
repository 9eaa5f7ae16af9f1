"""Pickles and copies of an accelerator are the accelerator."""

import contextlib
import copy
import itertools
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import accel_core
from accel_core import current
from accel_core.errors import (
    BackendNotFoundError,
    InvalidAcceleratorError,
)
from accel_core.verdict import How


def test_a_pickle_holds_the_name_and_gives_the_same_object_back(mlu):
    acc, cpu = accel_core.get_accelerator(), accel_core.accelerator("cpu")
    assert pickle.loads(pickle.dumps(acc)) is acc
    assert pickle.loads(pickle.dumps(cpu)) is cpu
    assert copy.copy(acc) is acc
    assert copy.deepcopy({"a": [acc]})["a"][0] is acc


def test_a_pickle_works_in_another_process(mlu):
    """Under a pin of one distribution of two, which the name alone does not tell."""
    mlu.backend("mlu", 200, distribution="better-mlu")
    code = "import accel_core, base64, json, pickle\n"
    pin = {"DS_ACCELERATOR": "mlu@better-mlu"}
    dumped = mlu.child(
        code
        + "print(json.dumps(base64.b64encode(pickle.dumps(accel_core.get_accelerator())).decode()))",
        variables=pin,
    ).answer
    code += (
        f"acc = pickle.loads(base64.b64decode({dumped!r}))\n"
        "print(json.dumps([acc.name, acc.backend.distribution, acc is accel_core.get_accelerator()]))"
    )
    assert mlu.child(code, variables=pin).answer == ["mlu", "better-mlu", True]


def test_an_accelerator_that_was_set_survives_its_pickle(mlu):
    class Mine(type(accel_core.accelerator("cpu"))):
        pass

    mine = Mine(accel_core.accelerator("cpu").backend)
    accel_core.set_accelerator(mine)
    assert pickle.loads(pickle.dumps(mine)) is mine


def test_set_by_name_by_object_and_back(mlu):
    cpu = accel_core.accelerator("cpu")
    accel_core.set_accelerator("cpu")
    assert accel_core.get_accelerator() is cpu
    assert accel_core.selection().name == "cpu"
    assert accel_core.selection().how is How.SET
    assert "cpu (accel-core" in str(accel_core.selection())
    assert "set by the program" in str(accel_core.selection())
    accel_core.set_accelerator(accel_core.accelerator("mlu"))
    assert accel_core.get_accelerator().name == "mlu"
    accel_core.set_accelerator(None)
    assert accel_core.selection().how is How.RANKED


@pytest.mark.parametrize("wrong", [5, "CPUAccelerator()", object(), type])
def test_what_is_no_accelerator_is_refused(mlu, wrong):
    before = accel_core.get_accelerator()
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)) as caught:
        accel_core.set_accelerator(wrong)
    expected = "expected an accel_core.Accelerator or a backend's name"
    assert (
        wrong != 5 or str(caught.value) == f"5 (int) is not an accelerator: {expected}"
    )
    assert isinstance(
        caught.value, LookupError if isinstance(wrong, str) else TypeError
    )
    with (
        pytest.raises((InvalidAcceleratorError, BackendNotFoundError)),
        accel_core.use_accelerator(wrong),
    ):
        pass
    assert accel_core.get_accelerator() is before


def test_use_is_for_the_block_and_nests(mlu):
    outer = accel_core.get_accelerator()
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        with accel_core.use_accelerator(outer):
            assert accel_core.get_accelerator() is outer
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator() is outer
    assert current._current_without_overrides is outer


def test_use_ends_with_an_exception_too(mlu):
    outer = accel_core.get_accelerator()
    with pytest.raises(ZeroDivisionError), accel_core.use_accelerator("cpu"):
        raise ZeroDivisionError
    assert accel_core.get_accelerator() is outer
    assert current._current_without_overrides is outer


def test_use_before_any_choice_chooses_nothing(mlu):
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        assert current._chosen is None
        assert (
            accel_core.selection().name == "mlu"
        )  # the record is of the process's choice
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator().name == "mlu"


def test_set_inside_use_counts_after_it(mlu):
    accel_core.get_accelerator()
    with accel_core.use_accelerator("mlu") as inner:
        accel_core.set_accelerator("cpu")
        assert accel_core.get_accelerator() is inner
    assert accel_core.get_accelerator().name == "cpu"


def test_a_block_that_is_interrupted_anywhere_is_not_in_force(mlu):
    chosen, other = accel_core.get_accelerator(), accel_core.accelerator("cpu")
    at, ended = 0, False

    def interrupt(frame, event, _):  # where Python looks for signals, at each once
        own = frame.f_code.co_filename in (current.__file__, contextlib.__file__)
        # A generator that goes on is no such place in Python 3.10, where an error there ends it unseen.
        own = own and (
            event != "call" or frame.f_lasti < 0 or sys.version_info >= (3, 11)
        )
        if own and event in ("call", "c_return") and next(left) == 0:
            raise KeyboardInterrupt

    while not ended:
        left = itertools.count(-at)
        at += 1
        try:
            sys.setprofile(interrupt)
            with accel_core.use_accelerator(other):
                pass
            ended = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert accel_core.get_accelerator() == chosen, at
        assert current._overrides == set(), at
    assert at > 10


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_block_whose_end_is_interrupted_while_others_choose_has_ended(mlu):
    with ThreadPoolExecutor(1) as pool:

        def let_the_end_wait_and_interrupt_it():
            pool.submit(current._lock.acquire).result()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)

        with pytest.raises(KeyboardInterrupt), accel_core.use_accelerator("cpu"):
            let_the_end_wait_and_interrupt_it()
        pool.submit(current._lock.release).result()
    assert accel_core.get_accelerator().name == "mlu"
    assert current._overrides == set()
