"""One staged collective on the host: what waits for what, buffers, copies, and how its end is told."""

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from accel_core import CommunicationError
from accel_train.staged import host
from accel_train.staged.host import Buffers, Queue, bytes_of
from accel_train.staged.operation import Operation, StagedWork

# ---------------------------------------------------------------------------- host
# Buffers that are used again, and copies in the order of the device's other work.


def test_the_bytes_of_a_tensor_are_its_own_memory():
    whole = torch.tensor([1, 258], dtype=torch.int16)
    bytes_of(whole)[2] = 5
    assert whole.tolist() == [1, 261]
    one = torch.arange(6, dtype=torch.int32).view(3, 2)[
        :1, 1:
    ]  # contiguous, with a stride of 2
    assert bytes_of(one).tolist() == [1, 0, 0, 0]
    assert bytes_of(torch.empty(0, 3)).tolist() == []


# --- buffers --------------------------------------------------------------------------------------------


def test_a_buffer_that_was_given_back_serves_the_next_of_about_its_size(device):
    buffers = Buffers(device)
    first = buffers.take(5000)
    assert first.numel() == 8192
    other = buffers.take(5000)
    assert other is not first
    buffers.give(first)
    assert buffers.take(8193).numel() == 16384
    assert buffers.take(8192) is first
    assert [buffers.take(size).numel() for size in (0, 1, 4096, 4097)] == [
        4096,
        4096,
        4096,
        8192,
    ]


def test_no_more_is_kept_than_the_limit_says(device, monkeypatch):
    monkeypatch.setattr(host, "_KEPT", 3 * 4096)
    buffers = Buffers(device)
    taken = [buffers.take(4096) for _ in range(4)]
    for _ in range(2):  # what is taken counts no more, and is given back again
        for each in taken:
            buffers.give(each)
        again = [buffers.take(4096) for _ in range(4)]
        assert {id(each) for each in taken[:3]} == {id(each) for each in again[:3]}
        assert again[3] is not taken[3]
    buffers.give(taken[0])
    buffers.clear()
    assert buffers.take(4096) is not taken[0]


def test_where_no_memory_can_be_page_locked_pageable_memory_serves(device):
    asked = []

    def refuse(*size, dtype):
        asked.append(size)
        raise OSError("mlock: not permitted")

    device.pin_empty = refuse
    buffers = Buffers(device)
    assert [buffers.take(10).numel() for _ in range(2)] == [4096] * 2
    assert asked == [(4096,)]  # and is not tried again


# --- the order of copies --------------------------------------------------------------------------------


def test_our_copies_wait_for_the_callers_stream_and_are_done_at_the_end(device):
    queue, done = Queue(device), []
    device.launch(done.append, "the caller's work")
    mark = queue.mark(1)
    device.launch(done.append, "what the caller does later")
    for number in range(2):
        with queue.side(1, mark):
            assert device.selected == 1
            device.launch(done.append, number)
            assert done == ["the caller's work", *range(number)]
        assert done == ["the caller's work", *range(number + 1)]
    assert device.selected is None
    stream = device.current_stream()
    with queue.here(1):  # a thread of the caller's copies in its stream
        assert (device.selected, device.current_stream()) == (1, stream)


@pytest.mark.parametrize("index", [None, 0])
def test_without_a_device_and_in_a_single_queue_order_holds_by_itself(
    device, monkeypatch, index
):
    if index is not None:
        monkeypatch.setattr(device, "Stream", type("OneQueue", (), {"one_queue": True}))
    queue = Queue(device)
    mark = queue.mark(index)
    assert mark is None
    stream = device.current_stream()
    with queue.side(index, mark):
        assert device.selected == index
        assert device.current_stream() is stream


def test_the_device_of_tensors_is_that_of_the_first_that_is_not_on_the_host(device):
    device.device_name = lambda: "meta"  # whose tensors have no index
    queue = Queue(device)
    assert queue.index([torch.ones(1)]) is None
    assert queue.index([]) is None
    assert queue.index([torch.ones(1), torch.ones(1, device="meta")]) == 0


# ---------------------------------------------------------------------------- operation
# One collective on the host: what waits for what, copies in and out, and how its end is told.


def nothing(_sources, _targets):
    return []


# --- what waits for what --------------------------------------------------------------------------------

WHOLE = torch.zeros(8, 4)
INNER = WHOLE[2:4]  # bytes 32 to 64


MEMORY = [
    (WHOLE, True),
    (INNER, True),
    (WHOLE[3:5], True),
    (WHOLE[1:3], True),
    (WHOLE[:2], False),
    (WHOLE[4:], False),
    (WHOLE[4:4], False),
    (
        WHOLE.view(torch.float64)[4:],
        False,
    ),  # offsets are counted in elements of other sizes
    (WHOLE.view(torch.float64)[3:4], True),
    (WHOLE.t()[:, 3:5], True),
    (WHOLE[:1].t().expand(4, 5), False),
    (WHOLE.view(-1)[15:], True),  # one element of both
    (WHOLE.view(-1)[:9], True),
    (torch.zeros(8, 4), False),
]


@pytest.mark.parametrize(("mine", "waits"), MEMORY, ids=range(14))
def test_a_collective_waits_for_what_is_written_in_its_memory(mine, waits):
    for how in ("reads", "writes", "both"):
        later = Operation("later", nothing, **{how: [torch.zeros(2), mine]})
        for written in ("writes", "both"):
            assert (
                later.waits_for(
                    Operation("x", nothing, **{written: [torch.zeros(2), INNER]})
                )
                is waits
            )
        assert not later.waits_for(
            Operation("before", nothing, reads=[INNER])
        )  # reading changes nothing


def test_it_is_named_with_its_tensors_types_and_bytes():
    given = [torch.zeros(2), torch.zeros(3, dtype=torch.int8), torch.zeros(1)]
    said = "all_gather of 3 tensors (float32, int8), 15 bytes"
    assert str(Operation("all_gather", nothing, reads=given)) == said
    assert (
        str(Operation("scatter", nothing, writes=given[:1]))
        == "scatter of 1 tensor (float32), 8 bytes"
    )
    assert str(Operation("barrier", nothing)) == "barrier"


# --- copies ---------------------------------------------------------------------------------------------


def through(operation, device, buffers=None, *, inline=True):
    queue, buffers = Queue(device), buffers or Buffers(device)
    operation.mark(queue)
    operation.enter(queue, buffers, inline=inline)
    operation.leave(queue, buffers, inline=inline)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_read_stays_and_what_is_written_comes_back(device, packed):
    # int8 first: what comes after it begins where no int32 may, so its bytes go round.
    source = [
        torch.tensor([7], dtype=torch.int8),
        torch.arange(6, dtype=torch.int32).view(3, 2).t(),
    ]
    target = [
        torch.zeros(1, dtype=torch.int8),
        torch.zeros(3, 2, dtype=torch.int32).t(),
    ]
    changed = [torch.arange(4.0).view(2, 2).t(), torch.ones(1)]
    seen = []

    def start(sources, targets):
        if packed:
            assert [each.dtype for each in sources + targets] == [torch.uint8] * 4
            read, (both, write) = sources[0], targets
            both.copy_(both.view(torch.float32).mul(2).view(torch.uint8))
            write.copy_(read)
            read.zero_()  # gloo may work in the copies
        else:
            assert all(each.is_contiguous() for each in sources + targets)
            for each in targets[:2]:
                each.mul_(2)
            for to, of in zip(targets[2:], sources[:2], strict=True):
                to.copy_(of)
            sources[1].zero_()
        return []

    operation = Operation(
        "copy", start, reads=source, writes=target, both=changed, packed=packed,
        finish=lambda targets: seen.append(len(targets)),
    )  # fmt: skip
    assert operation.result == [*changed, *target]
    through(operation, device)
    assert [each.tolist() for each in source] == [[7], [[0, 2, 4], [1, 3, 5]]]
    assert [each.tolist() for each in target] == [[7], [[0, 2, 4], [1, 3, 5]]]
    assert [each.tolist() for each in changed] == [[[0, 4], [2, 6]], [2]]
    assert seen == [2 if packed else 4]


def test_a_contiguous_tensor_of_the_host_is_not_copied(device):
    source, target, seen = torch.ones(2), torch.zeros(2), []

    def start(*hosts):
        seen.extend(host.data_ptr() for [host] in hosts)
        return []

    through(Operation("copy", start, reads=[source], writes=[target]), device)
    assert seen == [source.data_ptr(), target.data_ptr()]


@pytest.mark.parametrize("inline", [True, False])
def test_only_our_own_threads_copy_beside_the_callers_stream(device, inline):
    through(
        Operation("send", nothing, both=[torch.ones(2, 2).t()]), device, inline=inline
    )
    assert len(device.streams_used) == (0 if inline else 2)  # on the way in, and out


def test_gloo_is_done_when_all_of_its_works_are():
    operation = Operation("send", nothing)
    for works, done in (([], True), ([True, True], True), ([True, False], False)):
        operation.gloo = [
            SimpleNamespace(is_completed=lambda each=each: each) for each in works
        ]
        assert operation.is_gloo_done() is done


def test_autograd_takes_no_result_for_a_change_by_the_program(device):
    target = torch.zeros(2, 2, requires_grad=True).t()
    version = target._version

    def fill(targets):
        targets[0].fill_(3)

    through(Operation("fill", nothing, writes=[target], finish=fill), device)
    assert target._version == version
    assert target.tolist() == [[3, 3], [3, 3]]


def test_buffers_are_free_again_when_it_has_ended_and_not_while_gloo_may_use_them(
    device,
):
    class Failing:
        def wait(self):
            raise RuntimeError("gloo is not done with them")

    buffers, used, held = Buffers(device), [], []
    tensor = torch.ones(2, 2).t()

    def run(*ending):
        def start(sources, _):
            used.append(sources[0].data_ptr())
            return ending

        held.append(
            Operation("send", start, reads=[tensor])
        )  # what lives on keeps its memory
        through(held[-1], device, buffers)

    run()
    with pytest.raises(RuntimeError, match="not done with them"):
        run(Failing())
    run()
    first, second, third = used
    assert first == second != third


# --- how its end is told --------------------------------------------------------------------------------


@pytest.fixture
def work():
    tensor = torch.zeros(2)
    return StagedWork(Operation("all_reduce", nothing, both=[tensor]), "rank 0 of 2")


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
    assert (work.is_completed(), work.is_success(), work.exception()) == (
        True,
        True,
        None,
    )
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
    assert (work.is_completed(), work.is_success()) == (True, False)
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
        "One of the other ranks is late, lost, or in another",
    ),
    (
        RuntimeError("wait timed out"),
        "One of the other ranks is late, lost, or in another collective",
    ),
    (RuntimeError("Connection closed by peer"), "Another rank has ended"),
    (RuntimeError("Reset by peer"), "Another rank has ended"),
    (KeyboardInterrupt(), "failed: KeyboardInterrupt."),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_an_error_comes_with_the_next_step_or_its_name(work, error, words):
    work.end(error)
    assert words in str(work.exception())


def test_what_has_ended_holds_no_tensors(work):
    work.end()
    assert work._operation.tensors == []
