"""`TorchAccelerator`: the interface over any `torch.<device_type>` module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._binding import (
    ROWS,
    Call,
    Needs,
    Row,
    accepts,
    by_index,
    context_class,
    delegate,
    has_parameter,
    natively,
    or_default,
)
from accel_core.accelerators._torch_graphs import TorchGraphs
from accel_core.accelerators._torch_runtime import TorchRuntime
from accel_core.accelerators.interface import Accelerator
from accel_core.errors import BackendUnavailableError

if TYPE_CHECKING:
    import torch

    from accel_core.accelerators.records import DeviceProperties
    from accel_core.backend import Backend

__all__ = ["TorchAccelerator"]


class TorchAccelerator(TorchGraphs, TorchRuntime, Accelerator):
    """An accelerator whose vendor fills `torch.<device_type>`, as most do.

    At construction each member that means the same at the vendor becomes the vendor's function, as an
    attribute of this object: `acc.current_device is torch.npu.current_device`. A function that differs
    only in the name of its device parameter gets a closure in between. A member that a subclass overrides
    is left alone, and its `super()` call reaches the vendor. What the module lacks comes from
    `torch.accelerator` where that serves this device, else it is the default of `Accelerator`.

    Raises `BackendUnavailableError` when torch has no such module: the vendor's package, which brings it,
    must be imported before.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.device_module = getattr(self._torch, self._device_type, None)
        if self.device_module is None:
            raise BackendUnavailableError(
                f"{self.name}: torch has no module torch.{self._device_type}; "
                f"import {' or '.join(backend.vendor_imports)} before constructing {type(self).__name__}"
            )
        self._torch_accelerator = self._torch.accelerator if self._is_torch_accelerator() else None
        self._stream_class, self._event_class = self._find_streams()
        self._vendor_device = context_class(self._lookup("device"))
        #: What serves each row: of a member always something to call, of the others perhaps `None`.
        self._vendor: dict[str, Any] = {row.name: self._bind(row) for row in ROWS}
        self._trials: dict[torch.dtype, bool] = {}

    # What is there

    def _is_torch_accelerator(self) -> bool:
        """Whether `torch.accelerator` speaks of this device; asking initialises nothing."""
        try:
            device = self._torch.accelerator.current_accelerator()
        except RuntimeError:  # torch finds two that exclude each other
            return False
        return device is not None and device.type == self._device_type

    def _lookup(self, name: str) -> Any:
        """What the vendor's module has of that name, or `None`."""
        return getattr(self.device_module, name, None)

    def _function(self, row: Row) -> Any:
        """The vendor's function for a row, else torch's stand-in, or `None`."""
        if row.needs is Needs.STREAMS and self._stream_class is None:
            return None
        function = self._lookup(row.name)
        if function is not None or not row.in_torch:
            return function
        stand_in = getattr(self._torch_accelerator, row.in_torch, None)
        if stand_in is not None and row.needs is Needs.STREAMS:
            return self._tried(row.name, stand_in)
        if stand_in is not None and row.needs is Needs.ALLOCATOR:
            return or_default(stand_in, getattr(super(), row.name), self._checked_index)
        return stand_in

    def _bind(self, row: Row) -> Any:
        """What serves a row; it takes the member's place where the calls are the same, or can be made so."""
        function = self._function(row)
        if row.call is Call.PART:
            return function
        default = getattr(super(), row.name)
        if function is None:
            return default
        same = accepts(function, default) and (
            row.needs is not Needs.STREAM_CONTEXT or self._lookup("StreamContext") is not None
        )
        if row.call is Call.INDEXED and not same:
            function = by_index(function, self._current_index, self.device_guard)
        if (same or row.call is Call.INDEXED) and self._is_inherited(row.name):
            setattr(self, row.name, function)
        return function

    def _find_streams(self) -> tuple[Any, Any]:
        """The stream and event classes; `None` where there is none."""
        stream, event = self._lookup("Stream"), self._lookup("Event")
        # torch's own classes serve its accelerator, and `stream` needs the one that is a context manager.
        if (
            stream is None
            and self._torch_accelerator is not None
            and hasattr(self._torch.Stream, "__enter__")
        ):
            return self._torch.Stream, event or self._torch.Event
        return stream, event

    def _tried(self, name: str, stand_in: Callable[..., Any]) -> Callable[..., Any]:
        """Torch's function where the device has streams, else the default: decided at the first call."""
        default = getattr(super(), name)

        def first(device: Any = None) -> Any:
            chosen = stand_in if self._has_streams else default
            if self._is_inherited(name):
                setattr(self, name, by_index(chosen, self._current_index, self.device_guard))
            self._vendor[name] = chosen
            return chosen() if device is None else chosen(device)

        return first

    @cached_property
    def _has_streams(self) -> bool:
        """Whether streams and events work; tried where torch's own classes serve, which promise nothing.

        Whether a device has brought its streams into torch is known by use alone.
        """
        if self._stream_class is not self._torch.Stream:
            return self._stream_class is not None
        try:
            stream, event = self._stream_class(), self._torch.Event()
            event.record(stream)
            event.synchronize()
            stream.synchronize()
        except (RuntimeError, TypeError):  # torch's words for what a backend does not implement
            return False
        return True

    def _is_inherited(self, name: str) -> bool:
        """Whether no subclass overrides the member."""
        return getattr(type(self), name) is getattr(TorchAccelerator, name)

    def _current_index(self) -> int:
        """The current device, whatever a subclass makes of `current_device`."""
        return int(self._vendor["current_device"]())

    # Devices

    def _select(self, index: int) -> None:
        select = self._vendor["set_device"]
        if select is None:
            super()._select(index)
        else:
            select(index)

    def device_guard(self, device_index: int | None) -> AbstractContextManager[Any]:
        """A context manager that selects the device, then restores the one before.

        `None` changes nothing. Raises `ValueError` when the index is out of range. It is the vendor's own
        class where there is one: that does not start a runtime on a device only to select it again.
        """
        if device_index is None or self._vendor_device is None:
            return super().device_guard(device_index)
        guard: AbstractContextManager[Any] = self._vendor_device(self._checked_index(device_index))
        return guard

    def device_properties(self, device_index: int | None = None) -> DeviceProperties:
        """What `torch.<device_type>.get_device_properties` says, as a frozen record."""
        index = self._index(device_index)
        ask = self._vendor["get_device_properties"]
        if ask is None:
            return super().device_properties(index)
        from accel_core.accelerators._properties import read_properties

        return read_properties(ask(index), self._total_memory_or_none(index))

    # Random numbers

    def default_generator(self, device_index: int | None) -> torch.Generator:
        """The device's entry of `default_generators`, which the vendor fills when it initialises.

        Initialises the device when it must. `None` means the current device. Raises `ValueError` when
        the index is out of range.
        """
        generators = self._generators()
        if not generators:
            # Without an initialiser of its own, asking for the current device starts a vendor's runtime.
            start = self._vendor["init"] or self._vendor["_lazy_init"] or self.current_device
            start()
            generators = self._generators()
        if not generators:
            return super().default_generator(device_index)
        index = self.current_device() if device_index is None else device_index
        if not 0 <= index < len(generators):
            raise ValueError(f"{self.name}: there is no generator {index}, only 0 to {len(generators) - 1}")
        generator: torch.Generator = generators[index]
        return generator

    def _generators(self) -> Any:
        # Read anew: vendors put another tuple in place when they initialise. Habana keeps it in `random`.
        random = getattr(self.device_module, "random", None)
        return self._lookup("default_generators") or getattr(random, "default_generators", ())

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of the current device."""
        self._vendor["manual_seed"](seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices alike."""
        self._vendor["manual_seed_all"](seed)

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Restore the device's generator to a state from `get_rng_state`."""
        restore = self._vendor["set_rng_state"]
        if restore is None:
            super().set_rng_state(new_state, device_index)
        elif device_index is None:
            restore(new_state)
        else:
            restore(new_state, device_index)

    # Streams

    @cached_property
    def Event(self) -> Any:
        """The vendor's event class, called as `Event(enable_timing=True)`; else the default."""
        # Metal has events of its own, and no streams; torch's own are tried with its streams.
        own = self._event_class is not self._torch.Event or self._has_streams
        return (self._event_class if own else None) or super().Event

    @cached_property
    def Stream(self) -> Any:
        """The vendor's stream class, which takes `device` and `priority`; else the default."""
        if self._has_streams:
            return self._stream_class
        if self._torch_accelerator is None:
            return super().Stream
        from accel_core.accelerators._one_queue import stream_class

        return stream_class(super().Stream, self._torch, self._device_type)

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A context manager that makes `stream` the current one; `None` changes nothing."""
        # Bound straight where there is a StreamContext, which torch's and its followers' modules share and
        # which takes None; of others nobody knows that they do.
        if stream is None:
            return nullcontext()
        context: AbstractContextManager[Any] = self._vendor["stream"](stream)
        return context

    # Memory

    #: Whether torch gives page-locked memory for this device; `None` until it was tried, at the first use.
    _locks_pages: bool | None = None

    def _page_locked(self, make: Callable[[], torch.Tensor], ordinary: Callable[[], torch.Tensor]) -> Any:
        """What `make` gives, where torch locks host memory for this device; else ordinary memory."""
        if self._locks_pages is None:
            self._locks_pages = self._tries_to_lock()
        return make() if self._locks_pages else ordinary()

    def _tries_to_lock(self) -> bool:
        """Without such memory a device refuses; for Metal torch gives what is on it (pytorch#181374)."""
        try:
            tried: torch.Tensor = self._torch.empty(1, device="cpu", pin_memory=True)
        except NotImplementedError:
            return False
        except RuntimeError:  # such as of a host whose memory is full: whoever asked is told
            return True
        return tried.device.type == "cpu"

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor; an ordinary one where the device has no such memory."""
        pin = super()._torch_pin_memory
        copy: torch.Tensor = self._page_locked(lambda: pin(tensor), lambda: self._torch.clone(tensor))
        return copy

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Page-locked memory without values; ordinary memory where the device has no other."""
        make = super()._torch_empty_pinned
        empty: torch.Tensor = self._page_locked(lambda: make(tensor, shape), lambda: tensor.new_empty(shape))
        return empty

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked; never where the device has no such memory."""
        return self._locks_pages is not False and super()._torch_is_pinned(tensor)

    def memory_stats(self, device_index: int | None = None) -> Mapping[str, Any]:
        """The vendor's statistics, flat, with torch's keys.

        Vendors give an empty mapping before their allocator has started: then it holds the present amounts.
        """
        ask = self._vendor["memory_stats"]
        if ask is None:
            return super().memory_stats(device_index)
        stats: Mapping[str, Any] = ask() if device_index is None else ask(device_index)
        return stats or super().memory_stats(device_index)

    def total_memory(self, device_index: int | None = None) -> int:
        """Bytes of memory of the device, from its properties, else from what tells the free bytes too."""
        index = self.current_device() if device_index is None else device_index
        if (ask := self._vendor["get_device_properties"]) is not None:
            total = getattr(ask(index), "total_memory", None)
            if total is not None:
                return int(total)
        # Not `self.mem_get_info`: its default asks for the total.
        if (ask := self._lookup("mem_get_info")) is not None:
            return int(ask(index)[1])
        if (ask := getattr(self._torch_accelerator, "get_memory_info", None)) is not None:
            with suppress(RuntimeError):
                return int(ask(index)[1])
        return super().total_memory(index)

    def set_per_process_memory_fraction(self, fraction: float, device_index: int | None = None) -> None:
        """Let this process allocate at most `fraction` (0 to 1) of the device's memory."""
        limit = self._vendor["set_per_process_memory_fraction"]
        if limit is None:
            super().set_per_process_memory_fraction(fraction, device_index)
        elif device_index is None:
            limit(float(fraction))
        elif has_parameter(limit, "device"):
            limit(float(fraction), device_index)
        else:
            with self.device_guard(device_index):
                limit(float(fraction))

    # Data types

    def is_bf16_supported(self) -> bool:
        """The vendor's word on bfloat16, emulated too; without it, whether a product comes out right.

        That product is tried once, and again later where it failed for another reason than the data type.
        """
        return self._computes("is_bf16_supported", self._torch.bfloat16)

    def is_bf16_native(self) -> bool:
        """What the vendor says of bfloat16 without emulation; without its word, as `is_bf16_supported`."""
        ask = self._vendor["is_bf16_supported"]
        return super().is_bf16_native() if ask is None else self.is_available() and natively(ask)

    def is_fp16_supported(self) -> bool:
        """The vendor's word on float16; without it, whether a product comes out right.

        Tried as for `is_bf16_supported`. A plugin that knows the answer overrides this, so that asking
        starts no device.
        """
        return self._computes("is_fp16_supported", self._torch.float16)

    def is_fp8_supported(self) -> bool:
        """What the vendor says of native 8-bit floating point; False without its word."""
        ask = self._vendor["is_fp8_supported"]
        return ask is not None and self.is_available() and natively(ask)

    def _computes(self, name: str, dtype: torch.dtype) -> bool:
        if not self.is_available():
            return False
        if (ask := self._vendor[name]) is not None:
            return bool(ask())
        if dtype not in self._trials:
            from accel_core.accelerators._trial import computes_in

            answer = computes_in(self._torch, self._device_type, dtype)
            if isinstance(answer, Exception):
                import warnings

                warnings.warn(
                    f"{self.name}: whether it computes in {dtype} could not be tried, so the answer is no "
                    f"until it is asked again: {type(answer).__name__}: {str(answer).partition(chr(10))[0]}",
                    RuntimeWarning,
                    stacklevel=3,
                )
                return False
            self._trials[dtype] = answer
        return self._trials[dtype]

    # Deferred calls

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Run `callback` when the device initialises, or now if it has or the vendor cannot wait."""
        defer = self._vendor["_lazy_call"]
        return super().lazy_call(callback) if defer is None else defer(callback)


for _row in ROWS:
    if _row.call in (Call.PLAIN, Call.INDEXED):
        setattr(TorchAccelerator, _row.name, delegate(_row.name, getattr(TorchAccelerator, _row.name)))
