"""What holds before anything has started a device or used the second one: first of all, in this order."""

import pytest
import torch


def check_amounts_before_the_allocator_starts(acc):
    assert acc.memory_allocated(1) == 0
    assert set(acc.memory_stats(1).values()) == {0}
    assert acc.is_initialized() is False


def check_a_seed_before_the_device_starts(acc):
    acc.manual_seed_all(7)
    assert acc.is_initialized() is False


def check_what_waits_for_the_device(acc):
    """Deferred calls run once it starts, which a default generator makes it do."""
    seen = []
    acc.lazy_call(lambda: seen.append(acc.is_initialized()))
    assert seen == []
    assert torch.npu.default_generators == ()
    generator = acc.default_generator(1)
    assert generator.device == torch.device("npu", 1)
    assert acc.default_generator(None).device == torch.device("npu", 0)
    # The seed from before counts.
    assert generator.initial_seed() == 7
    assert acc.initial_seed() == 7
    with pytest.raises(
        ValueError, match="device index 2 is out of range: this process sees 2 devices"
    ):
        acc.default_generator(2)
    assert seen == [False]
    acc.lazy_call(lambda: seen.append("now"))
    assert seen == [False, "now"]


def check_a_device_that_nothing_has_selected(acc):
    """torch_npu's own functions fail here: ours select the device first, and give the other back."""
    with pytest.raises(RuntimeError, match="107002"):  # "the context is empty"
        torch.npu.get_device_properties(1)
    with pytest.raises(RuntimeError, match="Uninitialized default NPU stream"):
        torch.npu.current_stream(1)
    assert acc.mem_get_info(1) == (1 << 30, 1 << 30)
    assert acc.current_stream() == acc.default_stream()
    assert acc.current_stream(1).device == torch.device("npu", 1)
    assert acc.default_stream(1) == acc.current_stream(1)
    one = acc.device_properties(1)
    assert one.name == "Ascend910B1"
    assert one.total_memory == 1 << 30
    assert one.capability is None
    assert one.uuid == "20212223-2425-2627-2829-2a2b2c2d2e2f"
    assert (
        one.multiprocessors == 48
    )  # what torch_npu calls multi_processor_count: the vector units
    assert acc.device_properties().uuid != one.uuid
    assert acc.device_uuid(1) == one.uuid
    assert acc.current_device() == 0
    assert acc.is_initialized() is True
