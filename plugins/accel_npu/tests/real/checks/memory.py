"""Memory: names that torch_npu deprecates, and pages of the user's own."""

import ctypes
import mmap

import pytest


def check_the_old_names_warn_of_nothing(acc):
    assert acc.memory_cached() == acc.memory_reserved()
    assert acc.max_memory_cached() == acc.max_memory_reserved()
    acc.reset_max_memory_cached()
    assert acc.max_memory_cached() == acc.memory_reserved()


def check_the_users_own_memory_is_pinned(acc):
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert address % acc.pin_memory_alignment() == 0
    assert acc.register_host_memory(address, 8192) is True
    assert acc.register_host_memory(address, 8192) is False
    acc.unregister_host_memory(address)
    with pytest.raises(
        RuntimeError, match="cannot be unpinned: CANN returned error 107000"
    ):
        acc.unregister_host_memory(address)
    assert acc.register_host_memory(address + 8, 4096) is False
