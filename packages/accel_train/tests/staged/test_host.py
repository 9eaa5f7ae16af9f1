"""Copies between the device and the host, in the order of the device's other work."""

import pytest

pytest.importorskip("torch")

import torch

from accel_train.staged import arithmetic
from accel_train.staged.host import Copies, HostMemory, bytes_of


def test_the_bytes_of_a_tensor_are_its_own_memory():
    whole = torch.tensor([1, 258], dtype=torch.int16)
    bytes_of(whole)[2] = 5
    assert whole.tolist() == [1, 261]


def test_a_single_element_with_a_stride_has_bytes():
    one = torch.arange(6, dtype=torch.int32).view(3, 2)[:1, 1:]
    assert bytes_of(one).tolist() == [1, 0, 0, 0]


def test_no_elements_are_no_bytes():
    assert bytes_of(torch.empty(0, 3)).tolist() == []


def test_a_host_copy_is_contiguous_and_other_memory():
    tensor = torch.arange(6.0).view(2, 3).t()
    host = HostMemory().copy_of(tensor)
    assert host.is_contiguous()
    assert host.equal(tensor)
    assert host.data_ptr() != tensor.data_ptr()


def test_the_next_collective_uses_the_memory_again():
    memory, tensor = HostMemory(), torch.ones(1000)
    memory.copy_of(tensor)
    memory.start_reuse()
    first = memory.copy_of(tensor).data_ptr()
    memory.start_reuse()
    assert memory.copy_of(tensor).data_ptr() == first


def test_tensors_of_one_collective_do_not_overlap():
    memory = HostMemory()
    given = [torch.full((n,), n, dtype=torch.int8) for n in (1, 3, 65)]
    given.append(torch.ones(4, dtype=torch.float64))
    for _ in range(2):
        memory.start_reuse()
        assert all(
            host.equal(tensor)
            for host, tensor in zip(map(memory.copy_of, given), given, strict=True)
        )
        hosts = [memory.copy_of(tensor) for tensor in given]
        assert all(
            host.equal(tensor) for host, tensor in zip(hosts, given, strict=True)
        )


def test_memory_of_a_collective_that_failed_is_not_used_again():
    memory, tensor = HostMemory(), torch.ones(1000)
    memory.copy_of(tensor)
    memory.start_reuse()
    held = memory.copy_of(tensor)
    memory.discard()
    memory.start_reuse()
    assert memory.copy_of(tensor).data_ptr() != held.data_ptr()


def test_our_copies_wait_for_the_callers_stream_and_are_done_at_the_end(device):
    copies, done = Copies(device), []
    device.launch(done.append, "the caller's work")
    mark = copies.record_event(1)
    device.launch(done.append, "what the caller does later")
    with copies.on_side_stream(1, mark):
        assert device.selected == 1
        device.launch(done.append, "the copy")
        assert done == ["the caller's work"]
    assert done == ["the caller's work", "the copy"]
    assert device.selected is None


def test_a_device_has_one_stream_for_our_copies(device):
    copies = Copies(device)
    for _ in range(2):
        with copies.on_side_stream(1, copies.record_event(1)):
            pass
    first, second = device.streams_used
    assert first is second is not device.current_stream()


def test_a_message_is_copied_in_the_callers_stream(device):
    stream = device.current_stream()
    with Copies(device).on_current_stream(1):
        assert device.selected == 1
        assert device.current_stream() is stream


@pytest.mark.parametrize("index", [None, 0])
def test_without_a_device_and_in_a_single_queue_order_holds_by_itself(
    device, monkeypatch, index
):
    if index is not None:
        monkeypatch.setattr(device, "Stream", type("OneQueue", (), {"one_queue": True}))
    copies = Copies(device)
    mark = copies.record_event(index)
    assert mark is None
    stream = device.current_stream()
    with copies.on_side_stream(index, mark):
        assert device.selected == index
        assert device.current_stream() is stream


def test_the_device_of_tensors_is_that_of_the_first_that_is_not_on_the_host(device):
    device.device_name = lambda: "meta"  # whose tensors have no index
    copies = Copies(device)
    assert copies.device_index([torch.ones(1)]) is None
    assert copies.device_index([]) is None
    assert copies.device_index([torch.ones(1), torch.ones(1, device="meta")]) == 0


def test_host_memory_stays_on_the_host_when_a_program_sets_a_default_device():
    arithmetic._can_gloo_sum.cache_clear()
    with torch.device("meta"):
        host = HostMemory().empty_like(torch.empty(0, device="cpu"))
        can_sum = arithmetic._can_gloo_sum(torch.float32)
    assert host.device.type == "cpu"
    assert can_sum
