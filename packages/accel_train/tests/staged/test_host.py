"""Buffers that are used again, and copies in the order of the device's other work."""

import pytest

pytest.importorskip("torch")

import torch

from accel_train.staged import host
from accel_train.staged.host import Buffers, Queue, bytes_of


def test_the_bytes_of_a_tensor_are_its_own_memory():
    whole = torch.tensor([1, 258], dtype=torch.int16)
    bytes_of(whole)[2] = 5
    assert whole.tolist() == [1, 261]
    one = torch.arange(6, dtype=torch.int32).view(3, 2)[:1, 1:]  # contiguous, with a stride of 2
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
    assert [buffers.take(size).numel() for size in (0, 1, 4096, 4097)] == [4096, 4096, 4096, 8192]


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
def test_without_a_device_and_in_a_single_queue_order_holds_by_itself(device, monkeypatch, index):
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
