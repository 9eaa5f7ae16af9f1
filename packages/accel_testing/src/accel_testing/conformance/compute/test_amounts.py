"""Checks of memory: used and reserved amounts, peaks, limits, and pinned memory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accel_core import Accelerator, UnsupportedError
from accel_core.interface.memory import is_pinning_unsupported
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import (
    BrokenPromise,
    require,
    require_raises,
    skip_unsupported,
)

__all__ = ["TestMemory", "require_pinned_memory"]

_MEBIBYTE = 1 << 20
_RESETS = (
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)
#: Members that return an amount of memory of one device.
_MEMORY_MEMBERS = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached",
)  # fmt: skip

#: Members that must not change a peak; only the last member may change the amount of reserved memory.
_KEEP_PEAKS = (
    "memory_stats", "memory_summary", "mem_get_info", "available_memory", "device_properties", "synchronize",
    "reset_accumulated_memory_stats", "current_stream", "empty_host_cache", "empty_cache",
)  # fmt: skip
#: Types of pinned tensors, including types in which the device cannot compute.
_CPU_DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.uint8, torch.int64, torch.bool,
)  # fmt: skip
#: Views of a tensor of shape (2, 3, 4), most of which begin inside its storage.
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


def _allocate(
    accelerator: Accelerator, size: int = _MEBIBYTE, index: int | None = None
) -> torch.Tensor:
    """Return a tensor of `size` bytes on the device."""
    return torch.empty(size, dtype=torch.uint8, device=accelerator.device(index))


def _require_allocator(accelerator: Accelerator) -> None:
    """Skip the check unless the device counts its memory; free unused memory."""
    if not accelerator.is_accelerator():
        skip_unsupported(
            "the CPU's memory is the process's memory, which Python and the system retain"
        )
    gc.collect()
    accelerator.synchronize()


class TestMemory(BackendTestBase):
    """The reported amounts of memory must reflect the memory in use."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _freeze_existing_objects(cls) -> Iterator[None]:
        """Exclude existing objects, such as torch's compilers, from the checks' garbage collections."""
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()

    def test_allocated_grows_and_returns(self, accelerator: Accelerator) -> None:
        """A tensor's bytes count as allocated while it exists, rounded up to the allocator's block size."""
        _require_allocator(accelerator)
        before = accelerator.memory_allocated()
        block = _allocate(accelerator)
        grown = accelerator.memory_allocated() - before
        require(
            _MEBIBYTE <= grown <= 3 * _MEBIBYTE,
            f"a tensor of {_MEBIBYTE} bytes made memory_allocated() grow by {grown} bytes",
        )
        del block
        after = accelerator.memory_allocated()
        require(
            after == before,
            f"memory_allocated() was {before} before a tensor was created, and {after} after it was freed",
        )
        # Some machines cannot pin memory.
        with contextlib.suppress(RuntimeError):
            pinned = accelerator.pin_empty(_MEBIBYTE, dtype=torch.uint8)
            after = accelerator.memory_allocated()
            require(
                after == before,
                f"pin_empty of {pinned.nbytes} bytes changed memory_allocated() from {before} to {after}; "
                "expected no change, because pinned memory is host memory",
            )

    def test_reserved_holds_what_is_allocated(self, accelerator: Accelerator) -> None:
        """`memory_reserved` is at least `memory_allocated`, and at most the device's total memory."""
        _require_allocator(accelerator)
        block = _allocate(accelerator)
        reserved = accelerator.memory_reserved()
        allocated = accelerator.memory_allocated()
        require(
            reserved >= allocated,
            f"memory_reserved() returned {reserved}, and memory_allocated() {allocated}",
        )
        total = accelerator.total_memory()
        require(
            reserved <= total,
            f"memory_reserved() returned {reserved}; the device has {total} bytes",
        )
        del block

    def test_peaks(self, accelerator: Accelerator) -> None:
        """The peak is the largest amount since the last reset; a reset sets it to the present amount."""
        _require_allocator(accelerator)
        accelerator.reset_peak_memory_stats()
        before = accelerator.memory_allocated()
        block = _allocate(accelerator, 2 * _MEBIBYTE)
        del block
        peak = accelerator.max_memory_allocated()
        require(
            peak >= before + 2 * _MEBIBYTE,
            f"memory_allocated() was {before}; after a tensor of {2 * _MEBIBYTE} bytes was freed, "
            f"max_memory_allocated() returned {peak}; expected {before + 2 * _MEBIBYTE} or more",
        )
        in_use = _allocate(accelerator)
        for reset in _RESETS:
            block = _allocate(accelerator, 2 * _MEBIBYTE)
            del block
            self._require_peaks_kept(accelerator)
            getattr(accelerator, reset)()
            peak = accelerator.max_memory_allocated()
            allocated = accelerator.memory_allocated()
            require(
                allocated >= in_use.numel(),
                f"memory_allocated() returned {allocated} while {in_use.numel()} bytes are in use",
            )
            require(
                peak == allocated,
                f"after {reset}(), max_memory_allocated() is {peak}, and memory_allocated() is {allocated}",
            )
        peak = accelerator.max_memory_reserved()
        reserved = accelerator.memory_reserved()
        require(
            peak == reserved,
            f"after reset_max_memory_cached(), max_memory_reserved() is {peak}, and "
            f"memory_reserved() is {reserved}",
        )

    def _require_peaks_kept(self, accelerator: Accelerator) -> None:
        """Require that members that do not reset the peak change neither the peak nor the reserved memory."""
        peak = accelerator.max_memory_allocated()
        reserved = accelerator.memory_reserved()
        calls = [("set_device", [accelerator.current_device()])]
        calls += [(name, []) for name in _KEEP_PEAKS]
        for name, arguments in calls:
            getattr(accelerator, name)(*arguments)
            peak_after = accelerator.max_memory_allocated()
            require(
                peak_after == peak,
                f"{name} changed max_memory_allocated() from {peak} to {peak_after}",
            )
            reserved_after = accelerator.memory_reserved()
            require(
                reserved_after == reserved or name == "empty_cache",
                f"{name} changed memory_reserved() from {reserved} to {reserved_after}",
            )

    def test_totals_start_anew(self, accelerator: Accelerator) -> None:
        """`reset_accumulated_memory_stats` resets the accumulated totals of allocations to 0."""
        _require_allocator(accelerator)
        key = "allocated_bytes.all.allocated"
        _allocate(accelerator)
        if key not in accelerator.memory_stats():
            skip_unsupported("the device does not count accumulated allocations")
        total = accelerator.memory_stats()[key]
        require(
            total >= _MEBIBYTE,
            f"after a tensor of {_MEBIBYTE} bytes was created, the accumulated total is {total} bytes",
        )
        for index in (None, *range(accelerator.device_count())):
            _allocate(accelerator, index=index)
            accelerator.reset_accumulated_memory_stats(index)
            total_after = accelerator.memory_stats(index)[key]
            require(
                total_after == 0,
                f"after reset_accumulated_memory_stats({index}), memory_stats reports {total_after}",
            )
        _allocate(accelerator)
        total = accelerator.memory_stats()[key]
        accelerator.reset_peak_memory_stats()
        total_after = accelerator.memory_stats()[key]
        require(
            total_after == total,
            f"reset_peak_memory_stats() changed {key!r} from {total} to {total_after}",
        )

    def test_stats_agree(self, accelerator: Accelerator) -> None:
        """`memory_stats` contains, under torch's keys, the amounts that the members return."""
        _require_allocator(accelerator)
        block = _allocate(accelerator)
        stats = accelerator.memory_stats()
        for key, member in (
            ("allocated_bytes.all.current", "memory_allocated"),
            ("allocated_bytes.all.peak", "max_memory_allocated"),
            ("reserved_bytes.all.current", "memory_reserved"),
        ):
            if key in stats:
                amount = getattr(accelerator, member)()
                require(
                    stats[key] == amount,
                    f"memory_stats()[{key!r}] is {stats[key]}, but {member}() returned {amount}",
                )
        del block

    def test_devices_count_for_themselves(self, accelerator: Accelerator) -> None:
        """Memory allocated on one device is not counted on a different device."""
        _require_allocator(accelerator)
        count = accelerator.device_count()
        if count < 2 or accelerator.device(0) == accelerator.device(1):
            skip_unsupported("there is one device")
        size = 8 * _MEBIBYTE
        accelerator.empty_cache()
        for index in (0, 1):
            accelerator.reset_peak_memory_stats(index)
        before = [self._amounts(accelerator, index) for index in (0, 1)]
        free = accelerator.mem_get_info(1)[0]
        block = _allocate(accelerator, size, index=1)
        for name, amount in self._amounts(accelerator, 0).items():
            require(
                amount == before[0][name],
                f"{name}(0) counts a tensor on device 1",
            )
        after = self._amounts(accelerator, 1)
        require(
            before[1].pop("memory_summary") != after.pop("memory_summary"),
            "memory_summary(1) does not count a tensor on device 1",
        )
        for name, amount in after.items():
            grown = amount - before[1][name]
            # Allocated memory is compared exactly, but an allocator may reserve any amount.
            largest = 3 * size if "allocated" in name else grown
            require(
                size <= grown <= largest,
                f"a tensor of {size} bytes on device 1 made {name}(1) grow by {grown} bytes",
            )
        used = free - accelerator.mem_get_info(1)[0]
        require(
            used > 0,
            f"a tensor of {size} bytes on device 1 reduced the free bytes in mem_get_info(1) by {used}",
        )
        with accelerator.device_guard(1):
            selected = self._amounts(accelerator, None)
            del selected["memory_summary"]
        require(
            selected == after,
            f"with device 1 selected, the amounts without an index are {selected}, but with index 1 {after}",
        )
        del block
        allocated = before[1]["memory_allocated"]
        self._require_own_peaks(accelerator, size, allocated)

    def _amounts(self, accelerator: Accelerator, index: int | None) -> dict[str, Any]:
        """Return the amount of used memory from each member; `index=None` means the current device."""
        amounts = {name: getattr(accelerator, name)(index) for name in _MEMORY_MEMBERS}
        amounts["memory_summary"] = accelerator.memory_summary(index)
        amounts["used, of available_memory"] = -accelerator.available_memory(index)
        stats = accelerator.memory_stats(index)
        amounts["memory_stats"] = stats["allocated_bytes.all.current"]
        return amounts

    def _require_own_peaks(
        self, accelerator: Accelerator, size: int, allocated: int
    ) -> None:
        """Require that resetting device 0's peak keeps device 1's peak, with `allocated` bytes in use."""
        for reset in _RESETS:
            block = _allocate(accelerator, size, index=1)
            del block
            getattr(accelerator, reset)(0)
            peak = accelerator.max_memory_allocated(1)
            require(
                peak >= allocated + size,
                f"{reset}(0) reset the peak of device 1",
            )
            getattr(accelerator, reset)(1)
            peak = accelerator.max_memory_allocated(1)
            in_use = accelerator.memory_allocated(1)
            require(
                peak == in_use,
                f"after {reset}(1), the peak of device 1 is {peak}, while {in_use} bytes are in use",
            )

    def test_free_memory_shrinks(self, accelerator: Accelerator) -> None:
        """Memory that this process allocates is no longer reported as free."""
        _require_allocator(accelerator)
        accelerator.empty_cache()
        reserved_before = accelerator.memory_reserved()
        free_before, total = accelerator.mem_get_info()
        available_before = accelerator.available_memory()
        summary = accelerator.memory_summary()
        size = min(max(32 * _MEBIBYTE, total // 64), free_before // 2)
        block = _allocate(accelerator, size)
        free = accelerator.mem_get_info()[0]
        require(
            free < free_before,
            f"after {size} bytes were allocated, free memory changed from {free_before} to {free} bytes",
        )
        available = accelerator.available_memory()
        require(
            available < available_before,
            f"{size} bytes allocated changed available_memory() from {available_before} to {available}",
        )
        require(
            accelerator.memory_summary() != summary,
            f"memory_summary() did not change after {size} bytes were allocated",
        )
        reserved = accelerator.memory_reserved()
        del block
        accelerator.synchronize()
        cached = accelerator.memory_reserved()
        if not reserved_before < reserved <= cached:
            return  # the freed memory is not counted as reserved, or was released immediately
        for name, before, after in (
            ("mem_get_info()[0]", free, accelerator.mem_get_info()[0]),
            ("available_memory()", available, accelerator.available_memory()),
        ):
            require(
                after - before < size // 2,  # other processes may release memory
                f"after a tensor of {size} bytes was freed, memory_reserved() is {cached}, but {name} grew "
                f"from {before} to {after}; expected no growth: memory that the allocator keeps is not free "
                "before empty_cache()",
            )

    def test_cache_is_given_back(self, accelerator: Accelerator) -> None:
        """`empty_cache` keeps memory in use, and never reserves more memory."""
        _require_allocator(accelerator)
        accelerator.empty_cache()
        start = accelerator.memory_reserved()
        in_use = _allocate(accelerator)
        freed = _allocate(accelerator, 32 * _MEBIBYTE)
        peak = accelerator.memory_reserved()
        del freed
        before = accelerator.memory_reserved()
        accelerator.empty_cache()
        after = accelerator.memory_reserved()
        # The freed memory is still reserved.
        is_cached = start < peak == before
        if is_cached:
            require(
                after < before,
                f"empty_cache() released none of the {before} reserved bytes, of which 32 MiB were unused",
            )
        require(
            after <= before,
            f"empty_cache() made memory_reserved() grow from {before} to {after}",
        )
        allocated = accelerator.memory_allocated()
        require(
            after >= allocated >= in_use.numel(),
            f"after empty_cache(), {after} bytes are reserved, but {allocated} bytes are in use",
        )
        last = accelerator.device_count() - 1
        if last and is_cached:
            self._require_cache_given_back_on(accelerator, last)

    def _require_cache_given_back_on(self, accelerator: Accelerator, last: int) -> None:
        """Require that `empty_cache` empties the selected device's cache, and keeps the device selected."""
        with accelerator.device_guard(last):
            _allocate(accelerator, 32 * _MEBIBYTE)
            before = accelerator.memory_reserved()
            accelerator.empty_cache()
            after = accelerator.memory_reserved()
            current = accelerator.current_device()
        require(
            after < before,
            f"with device {last} selected, empty_cache() released none of its {before} reserved bytes",
        )
        require(
            current == last,
            f"with device {last} selected, empty_cache() changed the current device to {current}",
        )

    def test_running_out_is_told(self, accelerator: Accelerator) -> None:
        """Allocating too much memory raises `torch.OutOfMemoryError`, and the device works afterwards."""
        _require_allocator(accelerator)
        if accelerator.handles_memory_backpressure():
            skip_unsupported("an allocation waits for memory instead of failing")
        size = 4 * accelerator.total_memory()
        require_raises(
            lambda: _allocate(accelerator, size),
            torch.OutOfMemoryError,
            f"a tensor of {size} bytes",
        )
        total = torch.ones(4, device=accelerator.device()).sum().item()
        require(
            total == 4, f"after an out-of-memory error, the sum of four ones is {total}"
        )

    def test_fraction_limits(self, accelerator: Accelerator) -> None:
        """`set_per_process_memory_fraction` limits memory if the device supports it, and can be reset."""
        _require_allocator(accelerator)
        accelerator.empty_cache()
        try:
            accelerator.set_per_process_memory_fraction(0.05)
        except UnsupportedError:
            skip_unsupported("the device does not support a memory limit")
        try:
            size = accelerator.total_memory() // 8
            require_raises(
                lambda: _allocate(accelerator, size),
                torch.OutOfMemoryError,
                "an eighth of the memory, with a limit of 0.05,",
            )
        finally:
            accelerator.set_per_process_memory_fraction(1.0)
        _allocate(accelerator)
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
            return  # other processes use the memory
        in_use = _allocate(accelerator, total * 3 // 10)
        accelerator.set_per_process_memory_fraction(0.5)
        try:
            _allocate(accelerator, total // 10)
        except torch.OutOfMemoryError as error:
            raise BrokenPromise(
                f"after set_per_process_memory_fraction(0.5), with {in_use.nbytes} of {total} bytes in use, "
                f"a tensor of {total // 10} bytes raised {type(error).__name__}; expected no error, because "
                "less than half of the memory would be in use"
            ) from error
        finally:
            accelerator.set_per_process_memory_fraction(1.0)

    def test_pinned_copies(self, accelerator: Accelerator) -> None:
        """`pin_memory` returns a pinned host tensor with the same values."""
        require_pinned_memory(accelerator)
        host = torch.arange(12.0).view(3, 4)
        pinned = accelerator.pin_memory(host)
        require(
            pinned.device.type == "cpu",
            f"pin_memory returned a tensor on {pinned.device}",
        )
        require(
            torch.equal(pinned, host),
            f"pin_memory of {host.flatten()[:3].tolist()}… returned {pinned.flatten()[:3].tolist()}…",
        )
        self._require_pinned_values(accelerator, host)
        again = accelerator.pin_memory(host)
        require(
            pinned is host or pinned.data_ptr() != again.data_ptr(),
            "two calls of pin_memory returned the same memory",
        )
        self._require_is_pinned(accelerator, host, pinned)
        self._require_views_pinned(accelerator)
        on_device = pinned.to(accelerator.device(), non_blocking=True)
        accelerator.synchronize()
        require(
            torch.equal(on_device.cpu(), host),
            "a non-blocking copy of pinned memory changed the numbers",
        )
        self._require_pinned_without_copy(accelerator, host, pinned)
        self._require_freed_is_not_pinned(accelerator, host)
        self._require_unpinned_unchanged(accelerator, host, pinned)

    def _require_pinned_values(
        self, accelerator: Accelerator, host: torch.Tensor
    ) -> None:
        """Require that pinned copies with several sizes, strides and types have the same numbers."""
        for count in (1, 4097, 3 << 18):  # numbers of floats, up to three mebibytes
            numbers = torch.arange(float(count))
            pinned = accelerator.pin_memory(numbers)
            is_locked = accelerator.is_pinned(pinned) is accelerator.is_accelerator()
            require(
                torch.equal(pinned, numbers) and is_locked,
                f"pin_memory of {numbers.nbytes} bytes returned wrong numbers, or memory that is not pinned",
            )
        transposed = accelerator.pin_memory(host.T)
        require(
            torch.equal(transposed, host.T),
            f"pin_memory of a transposed tensor returned {transposed.tolist()}",
        )
        for dtype in _CPU_DTYPES:
            numbers = torch.tensor([0, 1, 3, -2]).to(dtype)
            pinned = accelerator.pin_memory(numbers)
            require(
                pinned.dtype == dtype and torch.equal(pinned, numbers),
                f"pin_memory of {numbers} returned {pinned}; expected the same numbers of {dtype}",
            )

    def _require_is_pinned(
        self, accelerator: Accelerator, host: torch.Tensor, pinned: torch.Tensor
    ) -> None:
        """Require True of `is_pinned` for `pinned`, a copy of `host`, and False for other tensors."""
        expected = accelerator.is_accelerator()  # memory for the CPU need not be pinned
        is_pinned = accelerator.is_pinned(pinned)
        require(
            is_pinned is expected,
            f"is_pinned returned {is_pinned!r} for the result of pin_memory; expected {expected}",
        )
        by_torch = pinned.is_pinned()  # `.to(non_blocking=True)` depends on it
        # If memory need not be pinned, torch may report it as pinned.
        require(
            by_torch is is_pinned or pinned is host,
            f"is_pinned returned {is_pinned!r}, but the tensor's method is_pinned() returned {by_torch!r}",
        )
        on_device = torch.ones(3, device=accelerator.device())
        is_pinned = accelerator.is_pinned(on_device)
        require(
            is_pinned is False or not expected,
            f"is_pinned of a tensor on the device returned {is_pinned!r}; expected False",
        )
        # A device that reads all host memory, such as Metal, needs neither pinning nor a copy.
        require(
            accelerator.is_pinned(host) is False or pinned is host,
            "is_pinned returned True for an ordinary tensor, although pin_memory copies the tensor",
        )

    def _require_views_pinned(self, accelerator: Accelerator) -> None:
        """Require that `is_pinned` agrees for a view and its tensor, and that `pin_memory` copies views."""
        expected = accelerator.is_accelerator()
        ordinary = torch.arange(24.0).view(2, 3, 4)
        pinned = accelerator.pin_memory(ordinary)
        for name, view in _VIEWS.items():
            is_pinned = accelerator.is_pinned(view(pinned))
            require(
                is_pinned is expected,
                f"is_pinned(p{name}) returned {is_pinned!r}, where p is pin_memory's result for a tensor of "
                f"shape (2, 3, 4); expected {expected}: a view has the storage of its tensor",
            )
            copied = accelerator.pin_memory(view(ordinary))
            require(
                torch.equal(copied, view(ordinary)),
                f"pin_memory(t{name}), where t has the shape (2, 3, 4), returned "
                f"{copied.flatten().tolist()}; expected {view(ordinary).flatten().tolist()}",
            )
            is_pinned = accelerator.is_pinned(view(ordinary))
            require(
                is_pinned is False or pinned is ordinary,
                f"is_pinned(t{name}) returned {is_pinned!r} for an ordinary tensor t of shape (2, 3, 4); "
                "expected False",
            )

    def _require_pinned_without_copy(
        self, accelerator: Accelerator, host: torch.Tensor, pinned: torch.Tensor
    ) -> None:
        """Require that `make_copy=False` returns new memory of the same size, in the given shape or flat."""
        for match_shape, shape in ((True, (3, 4)), (False, (12,))):
            empty = accelerator.pin_memory(
                host, make_copy=False, match_shape=match_shape
            )
            form = (tuple(empty.shape), empty.dtype)
            require(
                form == (shape, host.dtype),
                f"make_copy=False returned {tuple(empty.shape)} of {empty.dtype}; expected {shape}",
            )
            empty.fill_(-1)
            require(
                host.min() == 0,
                "pin_memory with make_copy=False returned the argument's memory; expected new memory",
            )
        empty = accelerator.pin_memory(pinned, make_copy=False)
        empty.fill_(-1)
        require(
            torch.equal(pinned, host),
            "pin_memory(p, make_copy=False) returned the memory of the pinned tensor p; expected new memory",
        )

    def _require_freed_is_not_pinned(
        self, accelerator: Accelerator, host: torch.Tensor
    ) -> None:
        """Require that `is_pinned` returns False for ordinary tensors in formerly pinned memory."""
        if accelerator.is_pinned(host):
            return  # the device reads all host memory, as Metal does
        for _ in range(8):
            freed = accelerator.pin_empty(5000, dtype=torch.float32)
            accelerator.is_pinned(freed)
            del freed
            accelerator.empty_host_cache()
            # One of these tensors is at the same address if the system reuses the address.
            ordinary = [torch.empty(5000) for _ in range(32)]
            require(
                not any(map(accelerator.is_pinned, ordinary)),
                "is_pinned returned True for an ordinary tensor after pinned memory was freed",
            )

    def _require_unpinned_unchanged(
        self, accelerator: Accelerator, host: torch.Tensor, pinned: torch.Tensor
    ) -> None:
        """Require that `unpin_memory` does not free memory that torch frees with the tensor."""
        is_of_torch = pinned.is_pinned()
        accelerator.unpin_memory(pinned)
        if is_of_torch:
            others = [accelerator.pin_memory(torch.zeros(3, 4)) for _ in range(4)]
            require(
                torch.equal(pinned, host),
                "unpin_memory(t) changed the numbers in t: torch frees the memory with its last tensor",
            )
            del others

    def test_pinned_room(self, accelerator: Accelerator) -> None:
        """`pin_empty` and `pin_empty_like` return host tensors with the requested shape and
        type.
        """
        model = torch.ones(2, 5, dtype=torch.float16)
        #: For each call: the result, and the expected shape and type.
        tensors = {
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
        for dtype in _CPU_DTYPES:
            tensor = accelerator.pin_empty(3, dtype=dtype)
            tensors[f"pin_empty(3, dtype={dtype})"] = (tensor, (3,), dtype)
        for call, (tensor, shape, dtype) in tensors.items():
            form = (tuple(tensor.shape), tensor.dtype, tensor.device.type)
            require(
                form == (shape, dtype, "cpu"),
                f"{call} returned {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}",
            )
        again = {
            "pin_empty(2, 3)": accelerator.pin_empty(2, 3, dtype=torch.int32),
            "pin_empty_like": accelerator.pin_empty_like(model),
        }
        for call, tensor in again.items():
            require(
                tensor.data_ptr() != tensors[call][0].data_ptr(),
                f"{call} returned the same memory in two calls",
            )
        pin_on_meta = partial(
            accelerator.pin_empty, 1, dtype=torch.float32, device="meta"
        )
        require_raises(pin_on_meta, ValueError, "pin_empty(1, device='meta')")
        require_pinned_memory(accelerator)
        expected = accelerator.is_accelerator()
        for call, (tensor, _, _) in tensors.items():
            is_pinned = accelerator.is_pinned(tensor)
            require(
                is_pinned is expected,
                f"is_pinned returned {is_pinned} for the result of {call}; expected {expected}",
            )

    def test_loader_feeds_the_device(self, accelerator: Accelerator) -> None:
        """Batches of a DataLoader with pinned memory reach the device unchanged, with or without workers."""
        require_pinned_memory(accelerator)
        pin_memory, device = accelerator.is_accelerator(), accelerator.device()
        torch.ones(1, device=device)  # workers start while the device is in use
        for workers in (0, 2):
            loader = DataLoader(
                TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=workers, pin_memory=pin_memory,
                persistent_workers=workers > 0,
            )  # fmt: skip
            for epoch in (1, 2):
                numbers = [
                    x
                    for (batch,) in loader
                    for x in batch.to(device, non_blocking=True).tolist()
                ]
                description = f"with {workers} workers, in epoch {epoch},"
                require(
                    numbers == list(range(8)),
                    f"{description} batches contain {numbers} on the device",
                )


def require_pinned_memory(accelerator: Accelerator) -> None:
    """Skip the check if the device has no pinned memory, in which case members return ordinary memory."""
    if not accelerator.is_accelerator():
        return
    try:
        torch.empty(1, pin_memory=True)
    except RuntimeError as error:
        if is_pinning_unsupported(error):
            skip_unsupported("the device has no pinned memory")
        raise
