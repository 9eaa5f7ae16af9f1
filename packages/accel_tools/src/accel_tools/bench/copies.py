"""Measure the bandwidth of copies between host and device, on a device and between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_tools.bench.records import Effort, Measurement, Step
from accel_tools.bench.timing import (
    Samples,
    make_measurement,
    mark_wrong,
    run_measurement,
    take_samples,
)
from accel_tools.machine import last_level_cache

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["buffer_bytes", "copies", "in_bytes", "is_on_host"]

#: The assumed size in bytes of the last-level caches, if their size is unknown.
_DEFAULT_CACHE = 32 * 2**20
_HOST_MEMORY = "the device uses the host's memory, so there is nothing to copy"
_NOT_EQUAL = "the copy differs from its source"


class _Copied(NamedTuple):
    """Result of timed copies."""

    samples: Samples
    #: Bytes per copy from which the rate is computed.
    work: int
    #: The size of the data as text, such as `"128 MiB"`.
    size: str
    #: Whether the target is equal to the source.
    is_equal: bool


def copies(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return one benchmark step per kind of copy.

    A rate between host and device counts each byte once. A rate on one device counts
    each byte twice, once for reading and once for writing, as the Copy benchmark of STREAM
    and nvbandwidth do.
    """
    steps = [
        _step(
            "copy.to_device.pinned",
            "to device, pinned",
            lambda: _to_device(accelerator, effort, pinned=True),
        ),
        _step(
            "copy.to_device.pageable",
            "to device, pageable",
            lambda: _to_device(accelerator, effort, pinned=False),
        ),
        _step(
            "copy.to_host.pinned",
            "to host, pinned",
            lambda: _to_host(accelerator, effort, pinned=True),
        ),
        _step(
            "copy.to_host.pageable",
            "to host, pageable",
            lambda: _to_host(accelerator, effort, pinned=False),
        ),
        _step(
            "copy.both_ways",
            "both ways at once",
            lambda: _both_ways(accelerator, effort),
        ),
        _step(
            "copy.on_device", "on the device", lambda: _on_device(accelerator, effort)
        ),
    ]
    if not is_on_host(accelerator) and accelerator.device_count() > 1:
        steps.append(
            _step(
                "copy.to_next",
                "to the next device",
                lambda: _to_next_device(accelerator, effort),
            )
        )
    return steps


def _step(name: str, title: str, copy: Callable[[], _Copied]) -> Step:
    def measure() -> Measurement:
        copied = copy()
        row = make_measurement(
            name, title, "B/s", copied.samples, copied.work, copied.size
        )
        return row if copied.is_equal else mark_wrong(row, _NOT_EQUAL)

    return Step(f"copy {title}", lambda: [run_measurement(name, title, "B/s", measure)])


def is_on_host(accelerator: Accelerator) -> bool:
    """Return whether the device is the CPU, whose memory is the host's memory."""
    return accelerator.device().type == "cpu"


def in_bytes(amount: int) -> str:
    """Return an amount of bytes as text, such as `"128 MiB"`, `"512 KiB"` or `"100 B"`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size and not amount * 4 % size:
            return f"{amount / size:g} {unit}"
    return f"{amount} B"


def buffer_bytes(accelerator: Accelerator, size: int) -> int:
    """Return the size in bytes of a buffer on the device.

    The size is `size`, limited to an eighth of the device's free memory, and rounded down to
    a multiple of 4 KiB. It is at least 4 KiB.
    """
    try:
        free = accelerator.available_memory()
    except UnsupportedError:
        free = 8 * size
    return max(4096, min(size, free // 8) // 4096 * 4096)


def host_bytes(accelerator: Accelerator, effort: Effort) -> int:
    """Return the size in bytes of a buffer in host memory that exceeds the CPU's caches."""
    caches = effort.cache_multiple * (last_level_cache() or _DEFAULT_CACHE)
    size = min(max(effort.min_bytes, caches), effort.max_bytes)
    return buffer_bytes(accelerator, size)


# --- Tensors -------------------------------------------------------------------------


def _pattern(size: int) -> Any:
    """Return a host tensor of `size` bytes, with different int32 numbers.

    Because all numbers differ, a copy that shifts the data is detected.
    """
    torch = import_torch()
    return torch.arange(1, size // 4 + 1, dtype=torch.int32)


def _zeros(size: int, device: Any) -> Any:
    """Return an int32 tensor of `size` bytes on `device`, filled with zeros.

    `torch.empty` would not do: all unwritten pages of host memory map to one page, which
    would be copied from a cache.
    """
    torch = import_torch()
    return torch.zeros(size // 4, dtype=torch.int32, device=device)


def _pinned(accelerator: Accelerator, tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of `tensor` in pinned memory.

    Raises `UnsupportedError` if the accelerator does not support pinned memory.
    """
    pinned = accelerator.pin_memory(tensor)
    if not accelerator.is_pinned(pinned):
        raise UnsupportedError(f"{accelerator.name} does not support pinned memory")
    return pinned


def _current_device(accelerator: Accelerator) -> Any:
    return accelerator.device(accelerator.current_device())


def _is_equal(target: torch.Tensor, source: torch.Tensor) -> bool:
    return bool(import_torch().equal(target.to("cpu"), source.to("cpu")))


# --- Copies --------------------------------------------------------------------------


def _to_device(accelerator: Accelerator, effort: Effort, *, pinned: bool) -> _Copied:
    """Time copies to the device from pinned or pageable host memory."""
    size = _crossing_bytes(accelerator, effort)
    pattern = _pattern(size)
    source = _pinned(accelerator, pattern) if pinned else pattern
    target = _zeros(size, _current_device(accelerator))
    samples = _copy(accelerator, effort, source, target, pinned=pinned)
    return _Copied(samples, size, in_bytes(size), _is_equal(target, pattern))


def _to_host(accelerator: Accelerator, effort: Effort, *, pinned: bool) -> _Copied:
    """Time copies from the device to pinned or pageable host memory."""
    size = _crossing_bytes(accelerator, effort)
    pattern = _pattern(size)
    source = pattern.to(_current_device(accelerator))
    target = _zeros(size, "cpu")
    if pinned:
        target = _pinned(accelerator, target)
    samples = _copy(accelerator, effort, source, target, pinned=pinned)
    # The target is compared with the pattern, because the copy to the device may be wrong too.
    return _Copied(samples, size, in_bytes(size), _is_equal(target, pattern))


def _crossing_bytes(accelerator: Accelerator, effort: Effort) -> int:
    """Return the number of bytes to copy between host and device.

    Raises `UnsupportedError` if the device uses the host's memory.
    """
    if is_on_host(accelerator):
        raise UnsupportedError(_HOST_MEMORY)
    return buffer_bytes(accelerator, effort.copy_bytes)


def _copy(
    accelerator: Accelerator,
    effort: Effort,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    pinned: bool,
) -> Samples:
    """Time copies between host and device; copies of pinned memory do not block the host."""
    return take_samples(
        lambda: target.copy_(source, non_blocking=pinned),
        accelerator.synchronize,
        effort,
    )


def _both_ways(accelerator: Accelerator, effort: Effort) -> _Copied:
    """Time simultaneous copies to the device and to the host, on one stream each."""
    size = _crossing_bytes(accelerator, effort)
    if getattr(accelerator.Stream, "one_queue", False):
        raise UnsupportedError(
            f"{accelerator.name} has only one queue, so copies cannot overlap"
        )
    pattern = _pattern(size)
    device = _current_device(accelerator)
    host_source = _pinned(accelerator, pattern)
    host_target = _pinned(accelerator, _zeros(size, "cpu"))
    device_source = pattern.to(device)
    device_target = _zeros(size, device)
    accelerator.synchronize()
    to_device, to_host = accelerator.Stream(), accelerator.Stream()

    def call() -> None:
        with accelerator.stream(to_device):
            device_target.copy_(host_source, non_blocking=True)
        with accelerator.stream(to_host):
            host_target.copy_(device_source, non_blocking=True)

    samples = take_samples(call, accelerator.synchronize, effort)
    is_equal = _is_equal(device_target, pattern) and _is_equal(host_target, pattern)
    return _Copied(samples, 2 * size, f"{in_bytes(size)} each way", is_equal)


def _on_device(accelerator: Accelerator, effort: Effort) -> _Copied:
    """Time copies within the memory of the current device."""
    if is_on_host(accelerator):
        size = host_bytes(accelerator, effort)
    else:
        size = buffer_bytes(accelerator, effort.device_bytes)
    pattern, device = _pattern(size), _current_device(accelerator)
    source, target = pattern.to(device), _zeros(size, device)
    samples = take_samples(
        lambda: target.copy_(source), accelerator.synchronize, effort
    )
    return _Copied(samples, 2 * size, in_bytes(size), _is_equal(target, pattern))


def _to_next_device(accelerator: Accelerator, effort: Effort) -> _Copied:
    """Time copies from the current device to the device with the next index."""
    here = accelerator.current_device()
    there = (here + 1) % accelerator.device_count()
    size = buffer_bytes(accelerator, effort.device_bytes)
    pattern = _pattern(size)
    source = pattern.to(accelerator.device(here))
    target = _zeros(size, accelerator.device(there))

    def wait() -> None:
        accelerator.synchronize(here)
        accelerator.synchronize(there)

    samples = take_samples(
        lambda: target.copy_(source, non_blocking=True), wait, effort
    )
    title = f"{in_bytes(size)}, {here} to {there}"
    return _Copied(samples, size, title, _is_equal(target, pattern))
