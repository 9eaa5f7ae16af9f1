"""Streams and events are truly asynchronous: work that was started has not been done yet."""

import contextlib
import os

import pytest
import torch

DELAY = 0.15


@contextlib.contextmanager
def slow_device():
    """Every copy and kernel takes its time from here on."""
    os.environ["STANDIN_DELAY_US"] = str(int(DELAY * 1e6))
    try:
        yield
        torch.npu.synchronize()
    finally:
        del os.environ["STANDIN_DELAY_US"]


def pinned(value):
    return torch.full((4,), float(value)).pin_memory()


def check_without_a_wait_the_old_value_is_read(acc):
    source, target, late = pinned(9), torch.zeros(4, device="npu"), acc.Stream()
    seen = torch.empty(4).pin_memory()
    acc.synchronize()
    with slow_device():
        with acc.stream(late):
            target.copy_(source, non_blocking=True)
            target.copy_(source, non_blocking=True)
            target.mul_(2)
        seen.copy_(target, non_blocking=True)
        acc.current_stream().synchronize()
        assert seen.tolist() != [18.0] * 4
    assert target.tolist() == [18.0] * 4


def check_a_kernel_that_fails_is_told_by_the_next_wait(acc):
    """As on a device; the text is torch_npu's own."""
    broken = torch.ones(2, 3, device="npu")
    from stand_in import kernels

    kernels.KERNELS["Abs"], kept = (lambda *_: 1 / 0), kernels.KERNELS["Abs"]
    try:
        torch.abs(broken)
        with pytest.raises(RuntimeError, match="507015"):
            acc.synchronize()
    finally:
        kernels.KERNELS["Abs"] = kept
    assert torch.abs(-torch.ones(2, device="npu")).tolist() == [1.0, 1.0]
