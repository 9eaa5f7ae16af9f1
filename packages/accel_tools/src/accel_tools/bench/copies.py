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
from accel_tools.bench.units import format_bytes
from accel_tools.machine import last_level_cache

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["buffer_size", "copy_steps", "is_on_host"]

#: The assumed size in bytes of the last-level caches, if their size is unknown.
_DEFAULT_CACHE = 32 * 2**20
#: The unit of a buffer's size, in bytes.
_PAGE = 4096
_HOST_MEMORY = "the device uses the host's memory, so there is nothing to copy"
_NOT_EQUAL = "the copy differs from its source"


class _TimedCopies(NamedTuple):
    """The result of timed copies."""

    samples: Samples
    #: Bytes per copy from which the rate is computed.
    work: int
    #: The size of the data as text, such as `"128 MiB"`.
    size: str
    #: Whether the target is equal to the source.
    is_equal: bool


def copy_steps(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return one benchmark step for each kind of copy.

    Rates between host and device count each byte once. Rates on one device count each byte twice, once for
    reading and once for writing, like STREAM's Copy benchmark and nvbandwidth.
    """
    steps = [
        _copy_step(
            "copy.to_device.pinned",
            "to device, pinned",
            lambda: _time_copies_to_device(accelerator, effort, pinned=True),
        ),
        _copy_step(
            "copy.to_device.pageable",
            "to device, pageable",
            lambda: _time_copies_to_device(accelerator, effort, pinned=False),
        ),
        _copy_step(
            "copy.to_host.pinned",
            "to host, pinned",
            lambda: _time_copies_to_host(accelerator, effort, pinned=True),
        ),
        _copy_step(
            "copy.to_host.pageable",
            "to host, pageable",
            lambda: _time_copies_to_host(accelerator, effort, pinned=False),
        ),
        _copy_step(
            "copy.both_ways",
            "both ways at once",
            lambda: _time_simultaneous_copies(accelerator, effort),
        ),
        _copy_step(
            "copy.on_device",
            "on the device",
            lambda: _time_copies_on_device(accelerator, effort),
        ),
    ]
    if not is_on_host(accelerator) and accelerator.device_count() > 1:
        steps.append(
            _copy_step(
                "copy.to_next",
                "to the next device",
                lambda: _time_copies_to_next_device(accelerator, effort),
            )
        )
    return steps


def _copy_step(name: str, title: str, time_copies: Callable[[], _TimedCopies]) -> Step:
    """Return a step that calls `time_copies`, and makes a measurement of the result."""

    def measure() -> Measurement:
        copies = time_copies()
        measurement = make_measurement(
            name, title, "B/s", copies.samples, copies.work, copies.size
        )
        if not copies.is_equal:
            return mark_wrong(measurement, _NOT_EQUAL)
        return measurement

    return Step(f"copy {title}", lambda: [run_measurement(name, title, "B/s", measure)])


def is_on_host(accelerator: Accelerator) -> bool:
    """Return whether the accelerator is the CPU, which uses the host's memory."""
    return accelerator.device().type == "cpu"


def buffer_size(accelerator: Accelerator, size: int) -> int:
    """Return how many bytes a device buffer should have: `size`, or fewer if memory is scarce.

    The buffer takes at most an eighth of the device's free memory. Its size is rounded down to a multiple
    of 4 KiB, and is at least 4 KiB.
    """
    try:
        limit = accelerator.available_memory() // 8  # Measurements use several buffers.
    except UnsupportedError:
        limit = size
    whole_pages = min(size, limit) // _PAGE
    return max(1, whole_pages) * _PAGE


def host_buffer_size(accelerator: Accelerator, effort: Effort) -> int:
    """Return the size in bytes of a host buffer that does not fit into the CPU's caches."""
    cache_size = last_level_cache() or _DEFAULT_CACHE
    larger_than_caches = effort.cache_multiple * cache_size
    size = min(max(effort.min_bytes, larger_than_caches), effort.max_bytes)
    return buffer_size(accelerator, size)


# --- Tensors -------------------------------------------------------------------------


def _pattern(size: int) -> Any:
    """Return an int32 tensor of `size` bytes in host memory, with the numbers 1, 2, 3 and so on.

    All numbers differ, so that a copy that shifts the data is detected.
    """
    torch = import_torch()
    return torch.arange(1, size // 4 + 1, dtype=torch.int32)


def _zeros(size: int, device: Any) -> Any:
    """Return an int32 tensor of `size` bytes on `device`, filled with zeros.

    `torch.empty` is not used, because all unwritten pages of host memory map to one page, which
    would be copied from a cache.
    """
    torch = import_torch()
    return torch.zeros(size // 4, dtype=torch.int32, device=device)


def _copy_to_pinned_memory(
    accelerator: Accelerator, tensor: torch.Tensor
) -> torch.Tensor:
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
    """Return whether two tensors, which may be on different devices, contain the same numbers."""
    return bool(import_torch().equal(target.to("cpu"), source.to("cpu")))


# --- Copies --------------------------------------------------------------------------


def _time_copies_to_device(
    accelerator: Accelerator, effort: Effort, *, pinned: bool
) -> _TimedCopies:
    """Time copies to the device from pinned or pageable host memory."""
    size = _host_copy_size(accelerator, effort)
    pattern = _pattern(size)
    source = _copy_to_pinned_memory(accelerator, pattern) if pinned else pattern
    target = _zeros(size, _current_device(accelerator))
    samples = _time_host_copies(accelerator, effort, source, target, pinned=pinned)
    return _TimedCopies(samples, size, format_bytes(size), _is_equal(target, pattern))


def _time_copies_to_host(
    accelerator: Accelerator, effort: Effort, *, pinned: bool
) -> _TimedCopies:
    """Time copies from the device to pinned or pageable host memory."""
    size = _host_copy_size(accelerator, effort)
    pattern = _pattern(size)
    source = pattern.to(_current_device(accelerator))
    target = _zeros(size, "cpu")
    if pinned:
        target = _copy_to_pinned_memory(accelerator, target)
    samples = _time_host_copies(accelerator, effort, source, target, pinned=pinned)
    # The target is compared with the pattern, because the copy to the device may be wrong too.
    return _TimedCopies(samples, size, format_bytes(size), _is_equal(target, pattern))


def _host_copy_size(accelerator: Accelerator, effort: Effort) -> int:
    """Return the number of bytes to copy between host and device.

    Raises `UnsupportedError` if the device uses the host's memory.
    """
    if is_on_host(accelerator):
        raise UnsupportedError(_HOST_MEMORY)
    return buffer_size(accelerator, effort.copy_bytes)


def _time_host_copies(
    accelerator: Accelerator,
    effort: Effort,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    pinned: bool,
) -> Samples:
    """Time copies of `source` to `target`, one of which is in host memory.

    Copies from and to pinned memory do not block the host.
    """
    return take_samples(
        lambda: target.copy_(source, non_blocking=pinned),
        accelerator.synchronize,
        effort,
    )


def _time_simultaneous_copies(accelerator: Accelerator, effort: Effort) -> _TimedCopies:
    """Time simultaneous copies to the device and to the host, on one stream each."""
    size = _host_copy_size(accelerator, effort)
    has_one_queue = getattr(accelerator.Stream, "one_queue", False)
    if has_one_queue:
        raise UnsupportedError(
            f"{accelerator.name} has only one queue, so copies cannot overlap"
        )
    pattern = _pattern(size)
    device = _current_device(accelerator)
    host_source = _copy_to_pinned_memory(accelerator, pattern)
    host_target = _copy_to_pinned_memory(accelerator, _zeros(size, "cpu"))
    device_source = pattern.to(device)
    device_target = _zeros(size, device)
    accelerator.synchronize()
    to_device, to_host = accelerator.Stream(), accelerator.Stream()

    def copy_both_ways() -> None:
        with accelerator.stream(to_device):
            device_target.copy_(host_source, non_blocking=True)
        with accelerator.stream(to_host):
            host_target.copy_(device_source, non_blocking=True)

    samples = take_samples(copy_both_ways, accelerator.synchronize, effort)
    is_equal = _is_equal(device_target, pattern) and _is_equal(host_target, pattern)
    copied_bytes = 2 * size  # One buffer in each direction.
    description = f"{format_bytes(size)} each way"
    return _TimedCopies(samples, copied_bytes, description, is_equal)


def _time_copies_on_device(accelerator: Accelerator, effort: Effort) -> _TimedCopies:
    """Time copies within the memory of the current device."""
    if is_on_host(accelerator):
        size = host_buffer_size(accelerator, effort)
    else:
        size = buffer_size(accelerator, effort.device_bytes)
    device = _current_device(accelerator)
    pattern = _pattern(size)
    source = pattern.to(device)
    target = _zeros(size, device)
    samples = take_samples(
        lambda: target.copy_(source), accelerator.synchronize, effort
    )
    transferred_bytes = 2 * size  # Each byte is read and written.
    is_equal = _is_equal(target, pattern)
    return _TimedCopies(samples, transferred_bytes, format_bytes(size), is_equal)


def _time_copies_to_next_device(
    accelerator: Accelerator, effort: Effort
) -> _TimedCopies:
    """Time copies from the current device to the device with the next index."""
    source_index = accelerator.current_device()
    target_index = (source_index + 1) % accelerator.device_count()
    size = buffer_size(accelerator, effort.device_bytes)
    pattern = _pattern(size)
    source = pattern.to(accelerator.device(source_index))
    target = _zeros(size, accelerator.device(target_index))

    def wait() -> None:
        accelerator.synchronize(source_index)
        accelerator.synchronize(target_index)

    samples = take_samples(
        lambda: target.copy_(source, non_blocking=True), wait, effort
    )
    description = f"{format_bytes(size)}, {source_index} to {target_index}"
    return _TimedCopies(samples, size, description, _is_equal(target, pattern))
