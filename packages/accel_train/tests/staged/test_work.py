"""What a collective returns: when it has ended, its result, and its error in words."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

pytest.importorskip("torch")

import torch
from torch._C import _distributed_c10d as c10d

from accel_core import CommunicationError
from accel_train.staged.work import MessageWork, StagedWork, describe_collective


def test_a_collective_is_named_with_its_tensors_types_and_bytes():
    given = [torch.zeros(2), torch.zeros(3, dtype=torch.int8), torch.zeros(1)]
    words = "all_gather of 3 tensors (float32, int8), 15 bytes"
    assert describe_collective("all_gather", given) == words


def test_a_collective_of_one_tensor_is_named_in_the_singular():
    words = "scatter of 1 tensor (float32), 8 bytes"
    assert describe_collective("scatter", [torch.zeros(2)]) == words


def test_a_collective_without_tensors_is_its_name():
    assert describe_collective("barrier", []) == "barrier"


@pytest.fixture
def work():
    tensors = [torch.zeros(2)]
    return StagedWork(
        f"rank 0 of 2: {describe_collective('all_reduce', tensors)}", tensors
    )


def test_before_its_end_a_limited_wait_says_what_is_waited_for(work):
    assert not work.is_completed()
    assert not work.is_success()
    said = r"^rank 0 of 2: all_reduce of 1 tensor \(float32\), 8 bytes has not ended after 0.001 s"
    with pytest.raises(CommunicationError, match=said):
        work.wait(timedelta(milliseconds=1))
    threading.Timer(0.05, work.end).start()
    assert work.wait(timedelta(0))  # which is torch's "no limit"


def test_a_good_end_gives_the_result_to_every_asker(work):
    early = work.get_future()
    assert work.get_future() is early
    assert not early.done()
    work.end()
    assert work.is_completed() is True
    assert work.is_success() is True
    assert work.exception() is None
    assert work.wait() is True
    work.synchronize()
    assert early.done()
    assert work.get_future() is early
    assert early.value() is work.result()
    assert [each.tolist() for each in work.result()] == [[0, 0]]


@pytest.mark.parametrize("early", [True, False])
def test_a_bad_end_is_raised_by_every_wait(work, early):
    future = work.get_future() if early else None
    cause = RuntimeError("no such peer.\nwhere it was raised")
    work.end(cause)
    assert work.is_completed() is True
    assert work.is_success() is False
    for ask in (
        work.wait,
        work.synchronize,
        work.result,
        (future or work.get_future()).wait,
    ):
        with pytest.raises(
            RuntimeError,
            match=r"^rank 0 of 2: all_reduce of .* failed: no such peer\.$",
        ):
            ask()
    assert isinstance(work.exception(), CommunicationError)
    assert work.exception().__cause__ is cause


ERRORS = [
    (
        RuntimeError("Timed out waiting 3000 ms"),
        "Another rank is late, has ended, or called a different",
    ),
    (
        RuntimeError("wait timed out"),
        "Another rank is late, has ended, or called a different collective",
    ),
    (RuntimeError("Connection closed by peer"), "Another rank has ended."),
    (RuntimeError("Reset by peer"), "Another rank has ended."),
    (KeyboardInterrupt(), "failed: KeyboardInterrupt."),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_an_error_comes_with_the_next_step_or_its_name(work, error, words):
    work.end(error)
    assert words in str(work.exception())


# --- messages ---------------------------------------------------------------------------


@pytest.fixture
def ranks():
    """Gloo's groups of two ranks, both in this process."""
    store, limit = c10d.HashStore(), timedelta(seconds=10)
    with ThreadPoolExecutor() as pool:
        return list(
            pool.map(lambda rank: c10d.ProcessGroupGloo(store, rank, 2, limit), (0, 1))
        )


def test_a_message_is_copied_out_once_by_who_waits(ranks):
    here, there = ranks
    target, copies = torch.zeros(2), []
    work = MessageWork("recv", here.recv([target], 1, 3), lambda: copies.append(1))
    assert not work.is_completed()
    there.send([torch.ones(2)], 0, 3).wait()
    assert copies == []
    assert work.wait() is True
    assert work.wait() is True
    assert copies == [1]
    assert work.is_completed()
    assert work.is_success()
    assert target.tolist() == [1, 1]
    assert work._source_rank() == 1


def test_a_message_that_does_not_come_is_the_error_of_every_wait(ranks):
    gloo = ranks[0].recv([torch.zeros(2)], 1, 4)
    work = MessageWork("rank 0 of 2: recv", gloo, lambda: None)
    for _ in range(2):
        with pytest.raises(CommunicationError, match=r"recv failed: .*imed out"):
            work.wait(timedelta(milliseconds=50))
    assert isinstance(work.exception(), CommunicationError)
    assert not work.is_success()


def test_a_message_has_no_future(ranks):
    here, there = ranks
    work = MessageWork("send", here.send([torch.ones(2)], 1, 5), lambda: None)
    with pytest.raises(
        CommunicationError, match=r"does not support get_future.* call wait\(\)"
    ):
        work.get_future()
    there.recv([torch.zeros(2)], 0, 5).wait()
    assert work.wait() is True
