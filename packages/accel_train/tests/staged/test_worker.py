"""The thread of a group: collectives in order, copies in and out, and its end."""

import gc
import threading
import weakref
from datetime import timedelta

import pytest

pytest.importorskip("torch")

import torch

from accel_core import CommunicationError
from accel_train.staged.host import Copies
from accel_train.staged.worker import Worker


@pytest.fixture
def worker(device):
    made = Worker("rank 0 of 2", Copies(device), lambda: None)
    yield made
    made.close()


def submit(worker, call, reads=(), writes=()):
    return worker.submit("all_reduce", call, list(reads), list(writes), list(writes))


def doubled(hosts):
    return [host * 2 for host in hosts]


def test_the_result_is_written_and_what_is_read_stays(worker):
    source, target = torch.arange(4.0).view(2, 2).t(), torch.zeros(2, 2).t()
    assert submit(worker, doubled, [source], [target]).wait()
    assert source.tolist() == [[0, 2], [1, 3]]
    assert target.tolist() == [[0, 4], [2, 6]]


def test_a_collective_may_work_in_its_copies(worker):
    source = torch.ones(2)
    submit(worker, lambda hosts: [hosts[0].zero_()][:0], [source]).wait()
    assert source.tolist() == [1, 1]


def test_a_collective_sees_what_the_one_before_wrote(worker):
    tensor, may_go_on = torch.ones(2), threading.Event()
    first = submit(
        worker, lambda hosts: may_go_on.wait(10) and doubled(hosts), [tensor], [tensor]
    )
    second = submit(worker, doubled, [tensor], [tensor])
    assert not first.is_completed()
    may_go_on.set()
    second.wait()
    assert first.is_completed()
    assert tensor.tolist() == [4, 4]


def test_a_callback_may_wait_for_another_collective(worker):
    """As the hook of PowerSGD does."""
    tensor, may_end = torch.ones(2), threading.Event()
    first = submit(
        worker, lambda hosts: may_end.wait(10) and doubled(hosts), [tensor], [tensor]
    )
    second_in_callback = first.get_future().then(
        lambda _: submit(worker, doubled, [tensor], [tensor]).wait(timedelta(seconds=5))
    )
    may_end.set()
    assert second_in_callback.wait()
    assert tensor.tolist() == [4, 4]


def test_autograd_takes_no_result_for_a_change_by_the_program(worker):
    target = torch.zeros(2, 2, requires_grad=True).t()
    version = target._version
    submit(worker, lambda _: [torch.full((2, 2), 3.0)], writes=[target]).wait()
    assert target._version == version
    assert target.tolist() == [[3, 3], [3, 3]]


def test_a_leaf_that_requires_a_gradient_receives_a_result(worker):
    target = torch.zeros(2, requires_grad=True)
    submit(worker, lambda _: [torch.ones(2)], writes=[target]).wait()
    assert target.tolist() == [1, 1]


def test_a_tensor_of_inference_mode_receives_a_result(worker):
    with torch.inference_mode():
        target = torch.zeros(2)
    submit(worker, lambda _: [torch.ones(2)], writes=[target]).wait()
    assert target.tolist() == [1, 1]


def test_a_collective_that_fails_leaves_the_next_to_run(worker):
    def fail(_):
        raise RuntimeError("no such peer")

    failed = submit(worker, fail, [torch.ones(2)])
    with pytest.raises(
        CommunicationError,
        match=r"^rank 0 of 2: all_reduce of 1 tensor \(float32\), 8 bytes failed: no such",
    ):
        failed.wait()
    target = torch.zeros(2)
    submit(worker, lambda _: [torch.ones(2)], writes=[target]).wait()
    assert target.tolist() == [1, 1]


def test_what_has_ended_holds_no_tensors(worker):
    source = torch.ones(2)
    alive = weakref.ref(source)
    submit(worker, lambda _: [], [source]).wait()
    submit(worker, lambda _: []).wait()  # the thread has left the first behind it
    del source
    gc.collect()
    assert alive() is None


def test_a_closed_worker_refuses_and_has_no_thread(device):
    worker = Worker("rank 0 of 2", Copies(device), lambda: None)
    submit(worker, lambda _: []).wait()
    worker.close()
    worker.close()
    assert not [t for t in threading.enumerate() if t.name == "accel-staged"]
    with pytest.raises(CommunicationError, match="has been destroyed"):
        submit(worker, lambda _: [])


def test_a_collective_that_does_not_end_is_aborted(device, monkeypatch):
    from accel_train.staged import worker as module

    monkeypatch.setattr(module, "_CLOSE_TIMEOUT", 0.05)
    aborted = threading.Event()
    worker = Worker("rank 0 of 2", Copies(device), aborted.set)

    def lost(_):
        assert aborted.wait(10)
        raise RuntimeError("aborted")

    work = submit(worker, lost)
    worker.close()
    with pytest.raises(CommunicationError, match="aborted"):
        work.wait()
