"""Memory of an accelerator over a torch device module: what differs from binding the vendor's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from accel_core.accelerators._binding import has_parameter
from accel_core.accelerators._devices import Devices
from accel_core.accelerators._memory import Memory, Pinning
from accel_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

__all__ = ["TorchMemory", "TorchRuntime", "lacks_page_locks"]

_T = TypeVar("_T")
#: torch's words (2.13) for a device without an allocator of such memory, or hooks to name one; TorchTPU's.
_NO_LOCKS = (
    "no pinned memory allocator",
    "register PrivateUse1HooksInterface",
    "getPinnedMemoryAllocator",
    "host memory allocator is not implemented",
)


def lacks_page_locks(error: RuntimeError) -> bool:
    """Whether torch refuses page-locked memory as the device has none, and not as the host's is full."""
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in _NO_LOCKS)


class TorchMemory(Pinning, Memory):
    """Page-locked memory where torch has it for the device; statistics and totals from where they are."""

    #: The vendor's module: `torch.npu`.
    device_module: Any
    #: `torch.accelerator` where it speaks of this device, else `None`.
    _torch_accelerator: Any
    #: What serves each row of the table in `_binding`.
    _vendor: dict[str, Any]
    #: What the vendor's function for a row says of an index, or `None`.
    _part: Callable[..., Any]
    #: Whether torch gives page-locked memory for this device; `None` until it was tried, at the first use.
    _locks_pages: bool | None = None

    def _page_locked(self, make: Callable[[], _T], ordinary: Callable[[], _T]) -> _T:
        """Return `make()` if torch page-locks host memory for this device, else `ordinary()`."""
        if self._locks_pages is None:
            self._locks_pages = self._tries_to_lock()
        return make() if self._locks_pages else ordinary()

    def _tries_to_lock(self) -> bool:
        """Without such memory a device refuses; for Metal torch gives what is on it (pytorch#181374)."""
        try:
            tried: torch.Tensor = self._torch.empty(1, device="cpu", pin_memory=True)
        except RuntimeError as error:
            return not lacks_page_locks(error)  # whoever asked is told of all else
        return tried.device.type == "cpu"

    def _where_pages_lock(self, function: Callable[[], None]) -> Callable[[], None]:
        """`function` for a device with page-locked memory; before the device starts nothing is kept there."""

        def member() -> None:
            if self._locks_pages is None and not self.is_initialized():
                return
            self._page_locked(function, lambda: None)

        return member

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor; an ordinary one where the device has no such memory."""
        pin = super()._torch_pin_memory
        copy: torch.Tensor = self._page_locked(lambda: pin(tensor), lambda: self._torch.clone(tensor))
        return copy

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Page-locked memory without values; ordinary memory where the device has no other."""
        make = super()._torch_empty_pinned
        return self._page_locked(lambda: make(tensor, shape), lambda: tensor.new_empty(shape))

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked; never where the device has no such memory."""
        return self._locks_pages is not False and super()._torch_is_pinned(tensor)

    def memory_stats(self, device_index: Device = None) -> Mapping[str, Any]:
        """The vendor's statistics, flat, with torch's keys.

        Vendors give an empty mapping before their allocator has started: then it holds the present amounts.
        """
        index = self._index_or_none(device_index)
        stats: Mapping[str, Any] | None = self._part("memory_stats", *(() if index is None else (index,)))
        return stats or super().memory_stats(index)

    def total_memory(self, device_index: Device = None) -> int:
        """Bytes of memory of the device, from its properties, else from what tells the free bytes too."""
        index = self._index(device_index)
        total = getattr(self._part("get_device_properties", index), "total_memory", None)
        if total is not None:
            return int(total)
        # Not `self.mem_get_info`: its default asks for the total.
        if (ask := getattr(self.device_module, "mem_get_info", None)) is not None:
            return int(ask(index)[1])
        if (ask := getattr(self._torch_accelerator, "get_memory_info", None)) is not None:
            with suppress(RuntimeError):
                return int(ask(index)[1])
        return super().total_memory(index)

    def set_per_process_memory_fraction(self, fraction: float, device_index: Device = None) -> None:
        """Let this process allocate at most `fraction` (0 to 1) of the device's memory."""
        limit = self._vendor["set_per_process_memory_fraction"]
        if limit is None:
            super().set_per_process_memory_fraction(fraction, device_index)
            return
        share, index = self._share(fraction), self._index_or_none(device_index)
        if index is None:
            limit(share)
        elif has_parameter(limit, "device"):
            limit(share, index)
        else:
            with self.device_guard(index):
                limit(share)

    def _share(self, fraction: Any) -> float:
        if isinstance(fraction, (str, bytes, bool)) or not hasattr(fraction, "__float__"):
            raise InvalidArgumentError(
                f"{self.name}: a memory fraction of {fraction!r} ({type(fraction).__name__}) was given, "
                "expected a number from 0 to 1"
            )
        return float(fraction)


class TorchRuntime(Devices):
    """Host memory is registered by `torch.<type>.<type>rt()`: `cudart().cudaHostRegister`, `supart()`.

    So torch names it for CUDA and ROCm, and vendors after it. Without such a function nothing is registered.
    """

    #: The vendor's module: `torch.npu`.
    device_module: Any

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock host memory; False without a device, or where the vendor's module has no way to.

        Raises what the vendor's `check_error` raises where the driver refuses: torch's `CudaError`, a
        `RuntimeError`.
        """
        register = self._of_runtime("HostRegister")
        if register is None:
            return False
        self._checked(register(address, num_bytes, 0))
        return True

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`. Raises as that does, for memory that is not registered too."""
        unregister = self._of_runtime("HostUnregister")
        if unregister is not None:
            self._checked(unregister(address))

    def _of_runtime(self, name: str) -> Any:
        """A function of the vendor's runtime; `None` without it or without a device to use it on."""
        runtime = getattr(self.device_module, f"{self._device_type}rt", None)
        if runtime is None or not hasattr(self.device_module, "check_error") or not self.is_available():
            return None
        return getattr(runtime(), f"{self._device_type}{name}", None)

    def _checked(self, status: Any) -> None:
        self.device_module.check_error(int(status))
