"""Memory: torch_npu's own allocator over the stand-in's, which has 1 GiB a device."""

from __future__ import annotations

import ctypes
import mmap

import pytest
import torch

MIB = 1 << 20


def block(mib, index=0):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=f"npu:{index}")


def check_amounts_before_the_allocator_starts(acc):
    assert acc.memory_allocated(1) == 0
    assert set(acc.memory_stats(1).values()) == {0}
    assert acc.mem_get_info(1) == (1 << 30, 1 << 30)


def check_allocated_and_peak(acc):
    before = acc.memory_allocated()
    x = block(8)
    assert 8 * MIB <= acc.memory_allocated() - before <= 8 * MIB + 1024
    del x
    assert acc.memory_allocated() == before
    assert acc.max_memory_allocated() >= 8 * MIB
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == before
    block(4)
    assert acc.max_memory_allocated() >= 4 * MIB
    acc.reset_max_memory_allocated()
    assert acc.max_memory_allocated() == before


def check_the_summary_and_what_is_forgotten(acc):
    x = block(8)
    summary = acc.memory_summary()
    assert "npu:0" in summary
    assert "8192 KiB" in summary or "8.0 MiB" in summary or "8 MiB" in summary, summary
    del x
    key = "allocated_bytes.all.freed"
    assert acc.memory_stats()[key] > 0
    acc.reset_accumulated_memory_stats()
    assert acc.memory_stats()[key] == 0
    acc.empty_host_cache()


def check_devices_are_counted_apart(acc):
    acc.empty_cache()
    x = block(16, 1)
    assert acc.memory_allocated(1) >= 16 * MIB
    assert acc.memory_allocated(0) < 16 * MIB
    free = [acc.mem_get_info(index)[0] for index in (0, 1)]
    assert free[1] <= (1 << 30) - 16 * MIB
    assert free[0] > free[1]
    assert acc.available_memory(1) == free[1]
    assert acc.total_memory(1) == acc.total_memory() == 1 << 30
    del x


def check_reserved_and_the_cache(acc):
    x = block(32)
    held = acc.memory_reserved()
    assert held >= acc.memory_allocated()
    del x
    assert acc.memory_reserved() == held
    assert acc.max_memory_reserved() >= held
    # The allocator may give the device back what nobody uses: that is free, and counted so.
    free = acc.available_memory()
    acc.empty_cache()
    assert acc.memory_reserved() < held
    assert acc.available_memory() > free


def check_the_old_names_warn_of_nothing(acc):
    assert acc.memory_cached() == acc.memory_reserved()
    assert acc.max_memory_cached() == acc.max_memory_reserved()
    acc.reset_max_memory_cached()
    assert acc.max_memory_cached() == acc.memory_reserved()


def check_statistics(acc):
    x = block(2)
    stats = acc.memory_stats()
    assert stats["allocated_bytes.all.current"] == acc.memory_allocated()
    assert stats["reserved_bytes.all.peak"] == acc.max_memory_reserved()
    assert {type(acc.memory_allocated()), type(acc.memory_reserved()), type(acc.total_memory())} == {int}
    assert [type(amount) for amount in acc.mem_get_info()] == [int, int]
    del x


def check_out_of_memory(acc):
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        block(2048)
    assert acc.memory_allocated() < MIB
    assert block(8).numel() == 8 * MIB


def check_pinned_memory(acc):
    host = torch.arange(6.0)
    assert acc.is_pinned(host) is False
    pinned = acc.pin_memory(host)
    assert acc.is_pinned(pinned) is True
    assert torch.equal(pinned, host)
    assert pinned.to("npu", non_blocking=True).tolist() == host.tolist()
    assert acc.pin_memory(host.view(2, 3), make_copy=False, match_shape=False).shape == (6,)
    empty = acc.pin_empty(2, 3, dtype=torch.int64)
    assert acc.is_pinned(empty)
    assert (tuple(empty.shape), empty.dtype) == ((2, 3), torch.int64)
    assert acc.is_pinned(acc.pin_empty_like(host, dtype=torch.float16))
    with pytest.raises(ValueError, match="device must be 'cpu'"):
        acc.pin_empty(2, dtype=torch.float32, device="npu")
    assert acc.unpin_memory(pinned) is None


def check_the_users_own_memory_is_page_locked(acc):
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert address % acc.pin_memory_alignment() == 0
    assert acc.register_host_memory(address, 8192) is True
    assert acc.register_host_memory(address, 8192) is False
    acc.unregister_host_memory(address)
    with pytest.raises(RuntimeError, match="cannot be released: error 107000"):
        acc.unregister_host_memory(address)
    assert acc.register_host_memory(address + 8, 4096) is False


def check_a_loader_with_workers_pins(acc):
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(acc.is_pinned(batch) for batch in batches)
    assert torch.cat([batch.to("npu").cpu() for batch in batches]).tolist() == list(range(8))


def check_a_fraction_of_the_memory(acc):
    """Last: after an out-of-memory error torch_npu 2.13.0 takes no other fraction for that device."""
    acc.empty_cache()
    acc.set_per_process_memory_fraction(0.25)
    acc.set_per_process_memory_fraction(0.5, 1)
    assert block(300, 1).numel() == 300 * MIB
    with pytest.raises(torch.OutOfMemoryError, match=r"256\.00 MiB allowed"):
        block(300)
