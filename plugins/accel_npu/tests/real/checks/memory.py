"""Memory: torch_npu's own allocator over the stand-in's, which has 1 GiB a device."""

from __future__ import annotations

import ctypes
import mmap

import pytest
import torch

MIB = 1 << 20


def block(mib, index=0):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=f"npu:{index}")


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
