"""Memory: figures that grow and return, peaks, limits, page-locked memory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accel_core import Accelerator
from accel_core.interface.memory import lacks_page_locks
from accel_testing.conformance.claims import (
    BrokenPromise,
    not_claimed,
    refused,
    require,
)
from accel_testing.conformance.subject import Subject

__all__ = ["TestAmounts", "require_page_locked"]

_MEBIBYTE = 1 << 20
#: Of one device.
_AMOUNTS = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached",
)  # fmt: skip

#: What changes no peak; the last one may change what is reserved.
_NO_CHANGE = (
    "memory_stats", "memory_summary", "mem_get_info", "available_memory", "device_properties", "synchronize",
    "reset_accumulated_memory_stats", "current_stream", "empty_host_cache", "empty_cache",
)  # fmt: skip
#: Of numbers on the host, whatever the device computes in.
_ANY_TYPE = (
    torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.uint8, torch.int64, torch.bool,
)  # fmt: skip
#: Views of a tensor of (2, 3, 4), most of which begin inside its storage.
_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "[1:]": lambda t: t[1:],
    "[1, 2, 3]": lambda t: t[1, 2, 3],
    "[:, 1:, ::2]": lambda t: t[:, 1:, ::2],
    ".view(-1)[-1:]": lambda t: t.view(-1)[-1:],
    ".permute(2, 0, 1)[1]": lambda t: t.permute(2, 0, 1)[1],
    ".mT": lambda t: t.mT,
    ".view(torch.int32)[1]": lambda t: t.view(torch.int32)[1],
    ".chunk(2)[1]": lambda t: t.chunk(2)[1],
}


def _block(
    accelerator: Accelerator, size: int = _MEBIBYTE, index: int | None = None
) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=accelerator.device(index))


def _require_allocator(accelerator: Accelerator) -> None:
    if not accelerator.is_accelerator():
        not_claimed(
            "the processor's memory is the process's, which Python and the system keep"
        )
    gc.collect()
    accelerator.synchronize()


class TestAmounts(Subject):
    """The device's amounts of memory follow its use."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _little_to_search(cls) -> Iterator[None]:
        """Take what is there out of the garbage collector's search: torch's compilers are half a million."""
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()

    def test_allocated_grows_and_returns(self, accelerator: Accelerator) -> None:
        """A tensor's bytes are counted while it lives, rounded up by no more than the allocator's blocks."""
        _require_allocator(accelerator)
        before = accelerator.memory_allocated()
        block = _block(accelerator)
        grown = accelerator.memory_allocated() - before
        require(
            _MEBIBYTE <= grown <= 3 * _MEBIBYTE,
            f"a tensor of {_MEBIBYTE} bytes makes memory_allocated() grow by {grown}",
        )
        del block
        after = accelerator.memory_allocated()
        require(
            after == before,
            f"memory_allocated() was {before}, and {after} once the tensor was gone",
        )
        with contextlib.suppress(
            RuntimeError
        ):  # no memory of the host can be locked here
            locked = accelerator.pin_empty(_MEBIBYTE, dtype=torch.uint8)
            after = accelerator.memory_allocated()
            require(
                after == before,
                f"pin_empty of {locked.nbytes} bytes changed memory_allocated() from {before} to {after}; "
                "expected no change: it is memory of the host",
            )

    def test_reserved_holds_what_is_allocated(self, accelerator: Accelerator) -> None:
        """`memory_reserved` is no less than `memory_allocated`, and no more than the device has."""
        _require_allocator(accelerator)
        block = _block(accelerator)
        held, allocated = accelerator.memory_reserved(), accelerator.memory_allocated()
        require(
            held >= allocated,
            f"memory_reserved() gave {held}, and memory_allocated() {allocated}",
        )
        total = accelerator.total_memory()
        require(held <= total, f"memory_reserved() gave {held}, of {total} bytes")
        del block

    def test_peaks(self, accelerator: Accelerator) -> None:
        """The peak is the largest amount since the last reset; a reset sets it to the present amount."""
        _require_allocator(accelerator)
        accelerator.reset_peak_memory_stats()
        before = accelerator.memory_allocated()
        block = _block(accelerator, 2 * _MEBIBYTE)
        del block
        peak = accelerator.max_memory_allocated()
        require(
            peak >= before + 2 * _MEBIBYTE,
            f"memory_allocated() was {before}; after a tensor of {2 * _MEBIBYTE} bytes came and went "
            f"max_memory_allocated() gave {peak}; expected {before + 2 * _MEBIBYTE} or more",
        )
        kept = _block(accelerator)
        for reset in (
            "reset_peak_memory_stats",
            "reset_max_memory_allocated",
            "reset_max_memory_cached",
        ):
            block = _block(accelerator, 2 * _MEBIBYTE)
            del block
            most = accelerator.max_memory_allocated()
            held = accelerator.memory_reserved()
            current = accelerator.current_device()
            for asking, given in (
                ("set_device", [current]),
                *((name, []) for name in _NO_CHANGE),
            ):
                getattr(accelerator, asking)(*given)
                still = accelerator.max_memory_allocated()
                require(
                    still == most,
                    f"{asking} changed max_memory_allocated() from {most} to {still}",
                )
                now = accelerator.memory_reserved()
                fits = now == held or asking == "empty_cache"
                require(
                    fits, f"{asking} changed memory_reserved() from {held} to {now}"
                )
            getattr(accelerator, reset)()
            again, now = (
                accelerator.max_memory_allocated(),
                accelerator.memory_allocated(),
            )
            require(
                now >= kept.numel(),
                f"memory_allocated() gave {now} while {kept.numel()} bytes are held",
            )
            require(
                again == now,
                f"after {reset}() max_memory_allocated() is {again}, memory_allocated() {now}",
            )
        most, held = accelerator.max_memory_reserved(), accelerator.memory_reserved()
        said = (
            f"after reset_max_memory_cached() max_memory_reserved() is {most}, and "
            f"memory_reserved() {held}"
        )
        require(most == held, said)

    def test_totals_start_anew(self, accelerator: Accelerator) -> None:
        """`reset_accumulated_memory_stats` sets the totals of allocations to 0."""
        _require_allocator(accelerator)
        key = "allocated_bytes.all.allocated"
        _block(accelerator)
        if key not in accelerator.memory_stats():
            not_claimed("the device does not count what was allocated in all")
        before = accelerator.memory_stats()[key]
        require(
            before >= _MEBIBYTE,
            f"after a tensor of {_MEBIBYTE} bytes {before} were allocated in all",
        )
        for index in (None, *range(accelerator.device_count())):
            _block(accelerator, index=index)
            accelerator.reset_accumulated_memory_stats(index)
            again = accelerator.memory_stats(index)[key]
            require(
                again == 0,
                f"after reset_accumulated_memory_stats({index}) memory_stats tells {again}",
            )
        _block(accelerator)
        before = accelerator.memory_stats()[key]
        accelerator.reset_peak_memory_stats()
        again = accelerator.memory_stats()[key]
        require(
            again == before,
            f"reset_peak_memory_stats() changed {key!r} from {before} to {again}",
        )

    def test_stats_agree(self, accelerator: Accelerator) -> None:
        """`memory_stats` has the same amounts, under torch's keys, as the members return."""
        _require_allocator(accelerator)
        block = _block(accelerator)
        stats = accelerator.memory_stats()
        for key, member in (
            ("allocated_bytes.all.current", "memory_allocated"),
            ("allocated_bytes.all.peak", "max_memory_allocated"),
            ("reserved_bytes.all.current", "memory_reserved"),
        ):
            if key in stats:
                told = getattr(accelerator, member)()
                require(
                    stats[key] == told,
                    f"memory_stats()[{key!r}] is {stats[key]}, and {member}() {told}",
                )
        del block

    def test_devices_count_for_themselves(self, accelerator: Accelerator) -> None:
        """Memory allocated on one device is not counted on another."""
        _require_allocator(accelerator)
        if accelerator.device_count() < 2 or accelerator.device(
            0
        ) == accelerator.device(1):
            not_claimed("there is one device")
        size = 8 * _MEBIBYTE

        def amounts(index: int | None) -> dict[str, Any]:
            told = {name: getattr(accelerator, name)(index) for name in _AMOUNTS}
            told |= {"memory_summary": accelerator.memory_summary(index)}
            told |= {"used, of available_memory": -accelerator.available_memory(index)}
            return {
                **told,
                "memory_stats": accelerator.memory_stats(index)[
                    "allocated_bytes.all.current"
                ],
            }

        accelerator.empty_cache()
        for index in (0, 1):
            accelerator.reset_peak_memory_stats(index)
        before, free = (
            [amounts(index) for index in (0, 1)],
            accelerator.mem_get_info(1)[0],
        )
        block = _block(accelerator, size, index=1)
        for name, amount in amounts(0).items():
            require(
                amount == before[0][name],
                f"a tensor on device 1 is counted by {name}(0)",
            )
        there = amounts(1)
        summaries = before[1].pop("memory_summary"), there.pop("memory_summary")
        require(
            summaries[0] != summaries[1],
            "a tensor on device 1 is not in memory_summary(1)",
        )
        for name, amount in there.items():
            grown = amount - before[1][name]
            # Tensors are counted as they are; what an allocator reserves for them is its own affair.
            most = 3 * size if "allocated" in name else grown
            what = (
                f"a tensor of {size} bytes on device 1 makes {name}(1) grow by {grown}"
            )
            require(size <= grown <= most, what)
        less = free - accelerator.mem_get_info(1)[0]
        require(
            less > 0,
            f"a tensor of {size} bytes on device 1 makes mem_get_info(1) tell {less} bytes less",
        )
        with accelerator.device_guard(1):
            here = amounts(None)
            del here["memory_summary"]
        require(
            here == there,
            f"with device 1 selected the amounts are {here}, and of device 1 by number {there}",
        )
        del block
        for reset in (
            "reset_peak_memory_stats",
            "reset_max_memory_allocated",
            "reset_max_memory_cached",
        ):
            block = _block(accelerator, size, index=1)
            del block
            getattr(accelerator, reset)(0)
            kept = accelerator.max_memory_allocated(1)
            require(
                kept >= before[1]["memory_allocated"] + size,
                f"{reset}(0) reset the peak of device 1",
            )
            getattr(accelerator, reset)(1)
            peak, now = (
                accelerator.max_memory_allocated(1),
                accelerator.memory_allocated(1),
            )
            require(
                peak == now,
                f"after {reset}(1) the peak of device 1 is {peak}, and {now} bytes are held",
            )

    def test_free_memory_shrinks(self, accelerator: Accelerator) -> None:
        """Memory that this process allocates is no longer reported as free."""
        _require_allocator(accelerator)
        accelerator.empty_cache()
        before = accelerator.memory_reserved()
        free, total = accelerator.mem_get_info()
        available, summary = (
            accelerator.available_memory(),
            accelerator.memory_summary(),
        )
        size = max(32 * _MEBIBYTE, total // 64)
        block = _block(accelerator, min(size, free // 2))
        less = accelerator.mem_get_info()[0]
        require(
            less < free,
            f"{block.numel()} bytes are held, and free memory went from {free} to {less}",
        )
        left = accelerator.available_memory()
        told = f"{block.numel()} bytes are held, and available_memory() went from {available} to {left}"
        require(left < available, told)
        changed = accelerator.memory_summary() != summary
        require(
            changed,
            f"memory_summary() is the same text with {block.numel()} bytes more",
        )
        held, size = accelerator.memory_reserved(), block.numel()
        del block
        accelerator.synchronize()
        kept = accelerator.memory_reserved()
        if not before < held <= kept:  # it is not counted, or was given back at once
            return
        for name, was, now in (
            ("mem_get_info()[0]", less, accelerator.mem_get_info()[0]),
            ("available_memory()", left, accelerator.available_memory()),
        ):
            require(
                now - was < size // 2,  # other processes may give back some
                f"a tensor of {size} bytes went, memory_reserved() stayed {kept}, and {name} went from {was} "
                f"to {now}; expected no more: what the allocator keeps is not free before empty_cache()",
            )

    def test_cache_is_given_back(self, accelerator: Accelerator) -> None:
        """`empty_cache` keeps what is in use and never reserves more."""
        _require_allocator(accelerator)
        accelerator.empty_cache()
        start = accelerator.memory_reserved()
        kept, gone = _block(accelerator), _block(accelerator, 32 * _MEBIBYTE)
        held = accelerator.memory_reserved()
        del gone
        before = accelerator.memory_reserved()
        accelerator.empty_cache()
        after = accelerator.memory_reserved()
        if start < held == before:  # it is counted, and was kept
            require(
                after < before,
                f"empty_cache() left {before} bytes reserved, of which 32 MiB were free",
            )
        require(
            after <= before,
            f"empty_cache() made memory_reserved() grow from {before} to {after}",
        )
        allocated = accelerator.memory_allocated()
        require(
            after >= allocated >= kept.numel(),
            f"after empty_cache() {after} is reserved, {allocated} used",
        )
        last = accelerator.device_count() - 1
        if not last or not start < held == before:
            return
        with accelerator.device_guard(last):
            _block(accelerator, 32 * _MEBIBYTE)
            held = accelerator.memory_reserved()
            accelerator.empty_cache()
            after, there = accelerator.memory_reserved(), accelerator.current_device()
        require(
            after < held,
            f"empty_cache(), device {last} selected, left all its {held} bytes reserved",
        )
        require(
            there == last,
            f"empty_cache(), device {last} selected, made {there} the current device",
        )

    def test_running_out_is_told(self, accelerator: Accelerator) -> None:
        """Allocating too much raises `torch.OutOfMemoryError`, and the device works afterwards."""
        _require_allocator(accelerator)
        if accelerator.handles_memory_backpressure():
            not_claimed("an allocation waits rather than fails")
        size = 4 * accelerator.total_memory()
        refused(
            lambda: _block(accelerator, size),
            torch.OutOfMemoryError,
            f"a tensor of {size} bytes",
        )
        total = torch.ones(4, device=accelerator.device()).sum().item()
        require(
            total == 4, f"after running out of memory a sum of four ones is {total}"
        )

    def test_fraction_limits(self, accelerator: Accelerator) -> None:
        """`set_per_process_memory_fraction` is a limit, where the device has one, and can be lifted."""
        from accel_core.errors import UnsupportedError

        _require_allocator(accelerator)
        accelerator.empty_cache()
        try:
            accelerator.set_per_process_memory_fraction(0.05)
        except UnsupportedError:
            not_claimed("the device has no such limit")
        try:
            size = accelerator.total_memory() // 8
            refused(
                lambda: _block(accelerator, size),
                torch.OutOfMemoryError,
                "an eighth, where 0.05 is allowed,",
            )
        finally:
            accelerator.set_per_process_memory_fraction(1.0)
        _block(accelerator)
        before = accelerator.max_memory_allocated(), accelerator.memory_reserved()
        accelerator.set_per_process_memory_fraction(1.0)
        after = accelerator.max_memory_allocated(), accelerator.memory_reserved()
        require(
            after == before,
            "set_per_process_memory_fraction(1.0) changed (max_memory_allocated(), memory_reserved()) from "
            f"{before} to {after}",
        )
        total = accelerator.total_memory()
        if accelerator.available_memory() < total // 2:
            return  # others use it
        held = _block(accelerator, total * 3 // 10)
        accelerator.set_per_process_memory_fraction(0.5)
        try:
            _block(accelerator, total // 10)
        except torch.OutOfMemoryError as error:
            raise BrokenPromise(
                f"set_per_process_memory_fraction(0.5), {held.nbytes} of {total} bytes in use, a tensor of "
                f"{total // 10} bytes: {type(error).__name__}; expected room: that is less than half"
            ) from error
        finally:
            accelerator.set_per_process_memory_fraction(1.0)

    def test_pinned_copies(self, accelerator: Accelerator) -> None:
        """`pin_memory` returns a host tensor with the same values, for which `is_pinned` is True."""
        require_page_locked(accelerator)
        host = torch.arange(12.0).view(3, 4)
        pinned = accelerator.pin_memory(host)
        require(
            pinned.device.type == "cpu", f"pin_memory gave a tensor on {pinned.device}"
        )
        same = torch.equal(pinned, host)
        require(
            same,
            f"pin_memory of {host.flatten()[:3].tolist()}… gave {pinned.flatten()[:3].tolist()}…",
        )
        for count in (1, 4097, 3 << 18):  # of floats: up to three mebibytes
            given = torch.arange(float(count))
            kept = accelerator.pin_memory(given)
            fits = (
                torch.equal(kept, given)
                and accelerator.is_pinned(kept) is accelerator.is_accelerator()
            )
            require(
                fits,
                f"pin_memory of {given.nbytes} bytes gave other numbers, or memory that is not locked",
            )
        across = accelerator.pin_memory(host.T)
        require(
            torch.equal(across, host.T),
            f"pin_memory of a transposed tensor gave {across.tolist()}",
        )
        again = accelerator.pin_memory(host)
        once = pinned is host or pinned.data_ptr() != again.data_ptr()
        require(once, "pin_memory gave the same memory twice")
        told = accelerator.is_pinned(pinned)
        expected = (
            accelerator.is_accelerator()
        )  # what the processor works on needs no locking
        require(
            told is expected,
            f"is_pinned gave {told!r} for what pin_memory gave; expected {expected}",
        )
        theirs = (
            pinned.is_pinned()
        )  # torch's word, which `.to(non_blocking=True)` goes by
        fits = (
            theirs is told or pinned is host
        )  # where nothing is to be locked torch may say so
        require(
            fits,
            f"is_pinned gave {told!r}, and the tensor's own is_pinned() {theirs!r}",
        )
        flat = torch.arange(24.0).view(2, 3, 4)
        locked = accelerator.pin_memory(flat)
        for dtype in _ANY_TYPE:
            given = torch.tensor([0, 1, 3, -2]).to(dtype)
            kept = accelerator.pin_memory(given)
            require(
                kept.dtype == dtype and torch.equal(kept, given),
                f"pin_memory of {given} gave {kept}; expected the same numbers of {dtype}",
            )
        told = accelerator.is_pinned(torch.ones(3, device=accelerator.device()))
        require(
            told is False or not expected,
            f"is_pinned of a tensor on the device gave {told!r}; expected False",
        )
        for what, view in _VIEWS.items():
            told = accelerator.is_pinned(view(locked))
            require(
                told is expected,
                f"is_pinned(p{what}) gave {told!r}, and p is what pin_memory gave for a tensor of (2, 3, 4); "
                f"expected {expected}: a view has the storage of its tensor",
            )
            copied = accelerator.pin_memory(view(flat))
            require(
                torch.equal(copied, view(flat)),
                f"pin_memory(t{what}), t a tensor of (2, 3, 4), gave {copied.flatten().tolist()}; expected "
                f"{view(flat).flatten().tolist()}",
            )
            told = accelerator.is_pinned(view(flat))
            require(
                told is False or locked is flat,
                f"is_pinned(t{what}) gave {told!r}, and t is an ordinary tensor of (2, 3, 4); expected False",
            )
        here = pinned.to(accelerator.device(), non_blocking=True)
        accelerator.synchronize()
        require(
            torch.equal(here.cpu(), host),
            "a late copy of page-locked memory changed the numbers",
        )
        # Where the device reads any memory of the host, as Metal's, there is nothing to lock or copy.
        honest = accelerator.is_pinned(host) is False or pinned is host
        require(
            honest,
            "is_pinned is True for an ordinary tensor, which pin_memory copies all the same",
        )
        for match_shape, shape in ((True, (3, 4)), (False, (12,))):
            template = accelerator.pin_memory(
                host, make_copy=False, match_shape=match_shape
            )
            fits = (tuple(template.shape), template.dtype) == (shape, host.dtype)
            found = f"{tuple(template.shape)} of {template.dtype}"
            require(fits, f"without a copy pin_memory gave {found}; expected {shape}")
            template.fill_(-1)
            require(
                host.min() == 0,
                "what pin_memory gives without a copy is the tensor that it was given",
            )
        template = accelerator.pin_memory(pinned, make_copy=False)
        template.fill_(-1)
        require(
            torch.equal(pinned, host),
            "pin_memory(p, make_copy=False), p being page-locked, gave p's own memory",
        )
        # Where the device reads any memory of the host, as Metal's, all of it is told to be locked.
        for _ in range(0 if accelerator.is_pinned(host) else 8):
            freed = accelerator.pin_empty(5000, dtype=torch.float32)
            accelerator.is_pinned(freed)
            del freed
            accelerator.empty_host_cache()
            plain = [
                torch.empty(5000) for _ in range(32)
            ]  # where it was, if the system gives that again
            told = any(map(accelerator.is_pinned, plain))
            require(
                not told,
                "is_pinned of an ordinary tensor gave True after page-locked memory was freed",
            )
        torchs = pinned.is_pinned()
        accelerator.unpin_memory(pinned)
        if torchs:
            others = [accelerator.pin_memory(torch.zeros(3, 4)) for _ in range(4)]
            same = torch.equal(pinned, host)
            require(
                same,
                "after unpin_memory(t) the numbers of t change: torch's memory goes with its last tensor",
            )
            del others

    def test_pinned_room(self, accelerator: Accelerator) -> None:
        """`pin_empty` and `pin_empty_like` return tensors of the requested shape and type, on the
        host only.
        """
        model = torch.ones(2, 5, dtype=torch.float16)
        room = {
            "pin_empty(2, 3)": (accelerator.pin_empty(2, 3, dtype=torch.int32), (2, 3), torch.int32),
            "pin_empty((2, 3))": (accelerator.pin_empty((2, 3), dtype=torch.int16), (2, 3), torch.int16),
            "pin_empty(torch.Size([4]))": (
                accelerator.pin_empty(torch.Size([4]), dtype=torch.int8), (4,), torch.int8,
            ),
            "pin_empty_like": (accelerator.pin_empty_like(model), (2, 5), torch.float16),
            "pin_empty_like with a type": (
                accelerator.pin_empty_like(model, dtype=torch.int8, device=torch.device("cpu")),
                (2, 5), torch.int8,
            ),
        }  # fmt: skip
        room |= {
            f"pin_empty(3, dtype={dtype})": (
                accelerator.pin_empty(3, dtype=dtype),
                (3,),
                dtype,
            )
            for dtype in _ANY_TYPE
        }
        for what, (made, shape, dtype) in room.items():
            fits = (tuple(made.shape), made.dtype, made.device.type) == (
                shape,
                dtype,
                "cpu",
            )
            require(
                fits,
                f"{what} gave {tuple(made.shape)} of {made.dtype} on {made.device}",
            )
        again = (
            accelerator.pin_empty(2, 3, dtype=torch.int32),
            accelerator.pin_empty_like(model),
        )
        for what, one in zip(("pin_empty(2, 3)", "pin_empty_like"), again, strict=True):
            require(
                one.data_ptr() != room[what][0].data_ptr(),
                f"{what} gave the same memory twice",
            )
        elsewhere = partial(
            accelerator.pin_empty, 1, dtype=torch.float32, device="meta"
        )
        refused(elsewhere, ValueError, "pin_empty(1, device='meta')")
        require_page_locked(accelerator)
        expected = accelerator.is_accelerator()
        for what, (made, _, _) in room.items():
            told = accelerator.is_pinned(made)
            require(
                told is expected,
                f"is_pinned gave {told} for what {what} gave; expected {expected}",
            )

    def test_loader_feeds_the_device(self, accelerator: Accelerator) -> None:
        """Batches of a DataLoader that pins memory reach the device unchanged, with and without workers."""
        require_page_locked(accelerator)
        pin, place = accelerator.is_accelerator(), accelerator.device()
        torch.ones(1, device=place)  # workers start beside a device in use
        for workers in (0, 2):
            loader = DataLoader(
                TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=workers, pin_memory=pin,
                persistent_workers=workers > 0,
            )  # fmt: skip
            for epoch in (1, 2):
                seen = [
                    x
                    for (batch,) in loader
                    for x in batch.to(place, non_blocking=True).tolist()
                ]
                what = f"with {workers} workers, in epoch {epoch},"
                require(seen == list(range(8)), f"{what} batches arrive as {seen}")


def require_page_locked(accelerator: Accelerator) -> None:
    """Require page-locked memory of torch: the members give ordinary memory on a device without it."""
    if not accelerator.is_accelerator():
        return
    try:
        torch.empty(1, pin_memory=True)
    except RuntimeError as error:
        if lacks_page_locks(error):
            not_claimed("the device has no page-locked memory")
        raise
