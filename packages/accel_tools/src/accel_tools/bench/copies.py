"""Bandwidth of copies: host to device and back, on the device, to the next device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_tools.bench.records import Effort, Measurement, Step
from accel_tools.bench.timing import attempted, measured, sampled, wrong
from accel_tools.machine import last_level_cache

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["buffer_bytes", "copies", "in_bytes", "on_host"]

#: Where nothing says how large the caches are: more than most CPUs have.
_CACHE = 32 * 2**20
_HOST_MEMORY = "the device uses the host's memory: nothing to copy"
_NOT_EQUAL = (
    "the copy differs from its source: the device did nothing, or something else"
)


def copies(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return the steps of all copies.

    A rate between host and device counts each byte once. A rate on one device counts bytes read and bytes
    written, as STREAM's Copy and nvbandwidth do.
    """
    made = [
        _step(
            "copy.to_device.pinned",
            "to device, pinned",
            lambda: _across(accelerator, effort, pinned=True),
        ),
        _step(
            "copy.to_device.pageable",
            "to device, pageable",
            lambda: _across(accelerator, effort),
        ),
        _step(
            "copy.to_host.pinned",
            "to host, pinned",
            lambda: _across(accelerator, effort, pinned=True, back=True),
        ),
        _step(
            "copy.to_host.pageable",
            "to host, pageable",
            lambda: _across(accelerator, effort, back=True),
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
    if not on_host(accelerator) and accelerator.device_count() > 1:
        made.append(
            _step(
                "copy.to_next",
                "to the next device",
                lambda: _to_next(accelerator, effort),
            )
        )
    return made


#: Of a measurement without its name: what was timed.
_Timed = Callable[[], "tuple[Any, int, str, bool]"]


def _step(name: str, title: str, timed: _Timed) -> Step:
    def measure() -> Measurement:
        samples, moved, size, right = timed()
        row = measured(name, title, "B/s", samples, moved, size)
        return row if right else wrong(row, _NOT_EQUAL)

    return Step(f"copy {title}", lambda: [attempted(name, title, "B/s", measure)])


def on_host(accelerator: Accelerator) -> bool:
    """Return whether the device's memory is the host's own, as the CPU's is."""
    return accelerator.device().type == "cpu"


def in_bytes(amount: int) -> str:
    """Return an amount of bytes as text: `"128 MiB"`, `"512 KiB"`, `"100 B"`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size and not amount * 4 % size:
            return f"{amount / size:g} {unit}"
    return f"{amount} B"


def buffer_bytes(accelerator: Accelerator, wanted: int) -> int:
    """Return `wanted` bytes, at most an eighth of the free memory, in whole 4 KiB, at least 4 KiB."""
    try:
        free = accelerator.available_memory()
    except UnsupportedError:
        free = 8 * wanted
    return max(4096, min(wanted, free // 8) // 4096 * 4096)


def host_bytes(accelerator: Accelerator, effort: Effort) -> int:
    """Return the size in bytes of a buffer in host memory that does not fit in the CPU's caches."""
    caches = effort.caches * (last_level_cache() or _CACHE)
    return buffer_bytes(
        accelerator, min(max(effort.least_bytes, caches), effort.most_bytes)
    )


# --- what is copied ------------------------------------------------------------------------------------


def _pattern(amount: int) -> Any:
    """A host tensor of that many bytes, no two words alike: what is shifted or left out shows."""
    torch = import_torch()
    return torch.arange(1, amount // 4 + 1, dtype=torch.int32)


def _locked(accelerator: Accelerator, tensor: torch.Tensor) -> torch.Tensor:
    """A pinned copy. Raises `UnsupportedError` where there is only ordinary memory."""
    locked = accelerator.pin_memory(tensor)
    if not accelerator.is_pinned(locked):
        raise UnsupportedError(f"{accelerator.name} has no pinned memory")
    return locked


def _zeros(amount: int, device: Any) -> Any:
    torch = import_torch()
    # Zeros, not `empty`: pages of the host's that nobody wrote are all one page, and are copied from a cache.
    return torch.zeros(amount // 4, dtype=torch.int32, device=device)


def _here(accelerator: Accelerator) -> Any:
    return accelerator.device(accelerator.current_device())


def _same(target: torch.Tensor, source: torch.Tensor) -> bool:
    return bool(import_torch().equal(target.to("cpu"), source.to("cpu")))


# --- the copies ----------------------------------------------------------------------------------------


def _across(
    accelerator: Accelerator,
    effort: Effort,
    *,
    pinned: bool = False,
    back: bool = False,
) -> tuple[Any, int, str, bool]:
    """Between host and device; from the device with `back`, and by way of pinned memory if `pinned`."""
    if on_host(accelerator):
        raise UnsupportedError(_HOST_MEMORY)
    amount = buffer_bytes(accelerator, effort.copy_bytes)
    pattern = _pattern(amount)
    empty = _zeros(amount, "cpu") if back else pattern
    ours = _locked(accelerator, empty) if pinned else empty
    theirs = (
        pattern.to(_here(accelerator)) if back else _zeros(amount, _here(accelerator))
    )
    source, target = (theirs, ours) if back else (ours, theirs)
    samples = sampled(
        lambda: target.copy_(source, non_blocking=pinned),
        accelerator.synchronize,
        effort,
    )
    return samples, amount, in_bytes(amount), _same(target, pattern)


def _both_ways(accelerator: Accelerator, effort: Effort) -> tuple[Any, int, str, bool]:
    """To the device and from it at once, on a stream each."""
    if on_host(accelerator):
        raise UnsupportedError(_HOST_MEMORY)
    if getattr(accelerator.Stream, "one_queue", False):
        raise UnsupportedError(
            f"{accelerator.name} has one queue, so copies do not overlap"
        )
    amount = buffer_bytes(accelerator, effort.copy_bytes)
    pattern = _pattern(amount)
    up, down = (
        _locked(accelerator, pattern),
        _locked(accelerator, _zeros(amount, "cpu")),
    )
    arriving, leaving = (
        _zeros(amount, _here(accelerator)),
        pattern.to(_here(accelerator)),
    )
    accelerator.synchronize()
    one, other = accelerator.Stream(), accelerator.Stream()

    def call() -> None:
        with accelerator.stream(one):
            arriving.copy_(up, non_blocking=True)
        with accelerator.stream(other):
            down.copy_(leaving, non_blocking=True)

    samples = sampled(call, accelerator.synchronize, effort)
    right = _same(arriving, pattern) and _same(down, pattern)
    return samples, 2 * amount, f"{in_bytes(amount)} each way", right


def _on_device(accelerator: Accelerator, effort: Effort) -> tuple[Any, int, str, bool]:
    if on_host(accelerator):
        amount = host_bytes(accelerator, effort)
    else:
        amount = buffer_bytes(accelerator, effort.device_bytes)
    pattern, device = _pattern(amount), _here(accelerator)
    source, target = pattern.to(device), _zeros(amount, device)
    samples = sampled(lambda: target.copy_(source), accelerator.synchronize, effort)
    return samples, 2 * amount, in_bytes(amount), _same(target, pattern)


def _to_next(accelerator: Accelerator, effort: Effort) -> tuple[Any, int, str, bool]:
    """From the current device to the one with the next index."""
    here = accelerator.current_device()
    there = (here + 1) % accelerator.device_count()
    amount = buffer_bytes(accelerator, effort.device_bytes)
    pattern = _pattern(amount)
    source, target = (
        pattern.to(accelerator.device(here)),
        _zeros(amount, accelerator.device(there)),
    )

    def wait() -> None:
        accelerator.synchronize(here)
        accelerator.synchronize(there)

    samples = sampled(lambda: target.copy_(source, non_blocking=True), wait, effort)
    return (
        samples,
        amount,
        f"{in_bytes(amount)}, {here} to {there}",
        _same(target, pattern),
    )
