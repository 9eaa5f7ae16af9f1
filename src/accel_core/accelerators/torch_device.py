"""`TorchAccelerator`: the interface over any `torch.<device_type>` module; `GenericAccelerator`."""

from __future__ import annotations

from collections.abc import Callable
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
    natively,
    or_default,
)
from accel_core.accelerators._streams import torch_stream_class
from accel_core.accelerators._torch_graphs import TorchGraphs
from accel_core.accelerators._torch_memory import TorchMemory, TorchRuntime
from accel_core.accelerators.interface import Accelerator
from accel_core.errors import BackendUnavailableError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import DeviceCapability, DeviceProperties
    from accel_core.backend import Backend

__all__ = ["GenericAccelerator", "TorchAccelerator"]


class TorchAccelerator(TorchGraphs, TorchMemory, TorchRuntime, Accelerator):
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
        if stand_in is not None and row.needs is Needs.PAGES:
            return self._where_pages_lock(stand_in)
        if stand_in is not None and row.needs is Needs.ALLOCATOR:
            # Past TorchMemory, whose methods ask for what is bound here.
            return or_default(stand_in, getattr(super(TorchMemory, self), row.name), self._checked_index)
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
            function = by_index(function, self._checked_index, self._current_index, self.device_guard)
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
                member = by_index(chosen, self._checked_index, self._current_index, self.device_guard)
                setattr(self, name, member)
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

    def device_guard(self, device_index: Device) -> AbstractContextManager[Any]:
        """A context manager that selects the device, then restores the one before.

        `None` changes nothing. Raises `InvalidDeviceError`, a `ValueError`, when there is no such device. It
        is the vendor's own class where there is one: that does not start a runtime on a device only to select
        it again.
        """
        if device_index is None or self._vendor_device is None:
            return super().device_guard(device_index)
        guard: AbstractContextManager[Any] = self._vendor_device(self._checked_index(device_index))
        return guard

    def device_properties(self, device_index: Device = None) -> DeviceProperties:
        """What `torch.<device_type>.get_device_properties` says, as a frozen record."""
        index = self._index(device_index)
        ask = self._vendor["get_device_properties"]
        if ask is None:
            return super().device_properties(index)
        from accel_core.accelerators.records import read_properties

        return read_properties(ask(index), self._total_memory_or_none(index))

    def get_device_capability(self, device_index: Device = None) -> DeviceCapability:
        """What `torch.accelerator.get_device_capability` says of the device; else each data type is tried.

        Not the vendor's function of this name, which tells a compute capability: `device_properties()` does.
        """
        index = self._index(device_index)
        if (ask := getattr(self._torch_accelerator, "get_device_capability", None)) is not None:
            with suppress(RuntimeError):  # torch's word for a device that does not tell
                told: dict[str, Any] = ask(index)
                return {"supported_dtypes": set(told["supported_dtypes"])}
        return super().get_device_capability(index)

    # Random numbers

    def default_generator(self, device_index: Device) -> torch.Generator:
        """The device's entry of `default_generators`, which the vendor fills when it initialises.

        Initialises the device when it must. `None` means the current device. Raises `InvalidDeviceError`, a
        `ValueError`, when there is no such device.
        """
        index = self._index_or_none(device_index)
        generators = self._generators()
        if not generators:
            # Without an initialiser of its own, asking for the current device starts a vendor's runtime.
            start = self._vendor["init"] or self._vendor["_lazy_init"] or self.current_device
            start()
            generators = self._generators()
        if not generators:
            return super().default_generator(index)
        index = self.current_device() if index is None else index
        if index >= len(generators):  # the vendor has fewer than devices
            raise self._unsupported("default_generator", f"device {index} has no generator of its own")
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

    def _restore_rng_state(self, state: torch.Tensor, device_index: Device) -> None:
        restore = self._vendor["set_rng_state"]
        if restore is None:
            super()._restore_rng_state(state, device_index)
        elif device_index is None:
            restore(state)
        else:
            restore(state, self._checked_index(device_index))

    # Streams

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class, called as `Event(enable_timing=True)`; else the default."""
        # Metal has events of its own, and no streams; torch's own are tried with its streams.
        own = self._event_class is not self._torch.Event or self._has_streams
        found: type[torch.Event] = (self._event_class if own else None) or super().Event
        return found

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class, which takes `device` and `priority`; else the default."""
        found: type[torch.Stream] = super().Stream if not self._has_streams else self._stream_class
        if self._has_streams or self._torch_accelerator is None:
            return found
        return torch_stream_class(found, self._torch, self._device_type)

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """A context manager that makes `stream` the current one; `None` changes nothing."""
        # Bound straight where there is a StreamContext, which torch's and its followers' modules share and
        # which takes None; of others nobody knows that they do.
        if stream is None:
            return nullcontext()
        context: AbstractContextManager[Any] = self._vendor["stream"](stream)
        return context

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` the current one of its device for this thread, until another is set."""
        # Bound straight where the vendor's module has it under this signature.
        if not self._has_streams:
            return
        if (select := self._lookup("set_stream")) is not None:
            select(stream)
        elif self._torch_accelerator is not None:
            self._torch_accelerator.set_stream(stream)
        else:
            self.stream(stream).__enter__()  # sets it, and is not left

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


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` over whatever device `torch.accelerator` names when this is constructed.

    The name stays "generic"; `device_name()` is torch's. Raises `BackendUnavailableError` when torch
    reports no accelerator.
    """

    def _torch_device_type(self) -> str:
        try:
            device = self._torch.accelerator.current_accelerator()
        except RuntimeError as error:  # torch finds two that exclude each other
            raise BackendUnavailableError(
                f"{self.name}: torch cannot name its accelerator: {error}"
            ) from error
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)
