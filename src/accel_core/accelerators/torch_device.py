"""`TorchAccelerator`: the interface over any `torch.<device_type>` module; `GenericAccelerator`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from enum import Enum, auto
from functools import cached_property, wraps
from inspect import isclass
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.accelerators import Accelerator
from accel_core.accelerators.devices import has_parameter, parameters
from accel_core.accelerators.dtypes import computes_in
from accel_core.accelerators.graphs import TorchGraphs
from accel_core.accelerators.memory import TorchMemory, TorchRuntime
from accel_core.accelerators.streams import torch_stream_class
from accel_core.errors import BackendUnavailableError, UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import DeviceCapability, DeviceProperties
    from accel_core.backend import Backend


class Call(Enum):
    """How a row is called, which decides what may stand in its place."""

    #: A member without arguments.
    PLAIN = auto()
    #: A member with `device_index=None`; vendors name that parameter otherwise, need it or lack it.
    INDEXED = auto()
    #: A member with an argument of its own, written out for the vendor whose function names it otherwise.
    OWN = auto()
    #: No member, but what methods build on, as it is; `None` where there is none.
    PART = auto()


class Needs(Enum):
    """Requirements of a row's function."""

    NOTHING = auto()
    #: torch's function works only for a device with an allocator of torch's kind, and says 0 before a start.
    ALLOCATOR = auto()
    #: torch's function ends the process where no page-locked memory is registered for the device.
    PAGES = auto()
    #: A stream class: without one, the one queue of the default serves.
    STREAMS = auto()
    #: To be bound as it is, a `StreamContext` beside it: torch's own modules and those that follow them have
    #: one, and it takes `None`; of others nobody knows that they do.
    STREAM_CONTEXT = auto()


class Row(NamedTuple):
    """One function of a vendor's module, `torch.<device_type>`."""

    #: Of the function, and of the member that it serves.
    name: str
    call: Call
    #: What `torch.accelerator` calls it; the newest torch that is read has it, an older one may not.
    in_torch: str = ""
    needs: Needs = Needs.NOTHING
    #: The vendor's function comes before torch's: it tells more, or is what torch's own calls.
    vendor_first: bool = False


#: Everything that is looked up once, at construction.
ROWS = (
    Row("current_device", Call.PLAIN, "current_device_index"),
    Row("device_count", Call.PLAIN, "device_count", vendor_first=True),
    Row("empty_cache", Call.PLAIN, "empty_cache", Needs.ALLOCATOR),
    Row("empty_host_cache", Call.PLAIN, "empty_host_cache", Needs.PAGES, vendor_first=True),
    Row("initial_seed", Call.PLAIN, "random.initial_seed"),
    Row("is_current_stream_capturing", Call.PLAIN),
    Row("is_initialized", Call.PLAIN),
    Row("current_stream", Call.INDEXED, "current_stream", Needs.STREAMS, vendor_first=True),
    Row("default_stream", Call.INDEXED, needs=Needs.STREAMS),
    Row("get_rng_state", Call.INDEXED, "random.get_rng_state"),
    Row("max_memory_allocated", Call.INDEXED, "max_memory_allocated", Needs.ALLOCATOR),
    Row("max_memory_reserved", Call.INDEXED, "max_memory_reserved", Needs.ALLOCATOR),
    Row("mem_get_info", Call.INDEXED, "get_memory_info", Needs.ALLOCATOR),
    Row("memory_allocated", Call.INDEXED, "memory_allocated", Needs.ALLOCATOR),
    Row("memory_reserved", Call.INDEXED, "memory_reserved", Needs.ALLOCATOR),
    Row(
        "reset_accumulated_memory_stats",
        Call.INDEXED,
        "reset_accumulated_memory_stats",
        Needs.ALLOCATOR,
    ),
    Row("reset_peak_memory_stats", Call.INDEXED, "reset_peak_memory_stats", Needs.ALLOCATOR),
    Row("synchronize", Call.INDEXED, "synchronize"),
    Row("manual_seed", Call.OWN),
    Row("manual_seed_all", Call.OWN),
    Row("set_stream", Call.OWN, needs=Needs.STREAMS),
    Row("stream", Call.OWN, needs=Needs.STREAM_CONTEXT),
    Row("is_bf16_supported", Call.PART),
    Row("is_fp16_supported", Call.PART),
    Row("is_fp8_supported", Call.PART),
    Row("_lazy_call", Call.PART),
    Row("_lazy_init", Call.PART),
    Row("get_device_properties", Call.PART),
    Row("init", Call.PART),
    Row("memory_stats", Call.PART, "memory_stats", Needs.ALLOCATOR, vendor_first=True),
    Row("set_device", Call.PART, "set_device_index"),
    Row("set_per_process_memory_fraction", Call.PART),
    Row("set_rng_state", Call.PART),
)

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def accepts(function: Callable[..., Any], member: Callable[..., Any]) -> bool:
    """Whether `function` takes every call that `member` documents: same names, same places."""
    theirs, ours = parameters(function), parameters(member) or []
    if theirs is None or len(theirs) < len(ours):
        return False
    required = inspect.Parameter.empty
    same = all(
        b.name == a.name and b.kind == a.kind and (a.default is required or b.default is not required)
        for a, b in zip(ours, theirs, strict=False)
    )
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return same and all(p.default is not required or p.kind in variadic for p in theirs[len(ours) :])


def by_index(
    function: Callable[..., Any],
    checked: Callable[[Device], int],
    current: Callable[[], int],
    guard: Callable[[int], AbstractContextManager[Any]],
) -> Callable[..., Any]:
    """`function(device)` as `member(device_index=None)`, whose argument `checked` makes an index.

    A function that needs a device is given the current one, and one that takes none runs with the
    device selected.
    """
    places = parameters(function)
    places = None if places is None else [p for p in places if p.kind in _POSITIONAL]

    def optional(device_index: Device = None) -> Any:
        # The vendor's own default stands for the current device: `None`, or a string such as "cuda".
        return function() if device_index is None else function(checked(device_index))

    def needed(device_index: Device = None) -> Any:
        return function(current() if device_index is None else checked(device_index))

    def absent(device_index: Device = None) -> Any:
        if device_index is None:
            return function()
        with guard(checked(device_index)):
            return function()

    if places is None:
        return optional
    if not places:
        return absent
    return needed if places[0].default is inspect.Parameter.empty else optional


def natively(ask: Callable[..., Any]) -> bool:
    """A vendor's answer about a data type, without the emulation that several count by default."""
    return bool(ask(including_emulation=False) if has_parameter(ask, "including_emulation") else ask())


def context_class(value: Any) -> Any:
    """`value` where it is a class of context managers, as `torch.cuda.device` is; else `None`."""
    return value if inspect.isclass(value) and hasattr(value, "__enter__") else None


def delegate(name: str, member: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls what the instance keeps in `_vendor` for `name`, with `member`'s signature.

    It is what `super().name()` reaches from an override, and what serves where nothing could be bound.
    """

    def plain(self: Any) -> Any:
        return self._vendor[name]()

    def indexed(self: Any, device_index: Device = None) -> Any:
        return self._vendor[name](device_index)

    return functools.wraps(member)(plain if len(parameters(member) or ()) == 1 else indexed)


#: Types whose memory and streams `torch.accelerator` serves; of others each is tried at its first call.
_TRUSTED = ("cuda", "xpu")


def _is_missing(error: RuntimeError) -> bool:
    """Whether a vendor's function is none for us: it names torch's instead, as TorchTPU's do."""
    return isinstance(error, NotImplementedError) or "torch.accelerator" in str(error)


class TorchAccelerator(TorchGraphs, TorchMemory, TorchRuntime, Accelerator):
    """An accelerator whose vendor fills `torch.<device_type>`, as most do.

    A member becomes a function of torch's or of the vendor's, as an attribute of this object:
    `acc.current_device is torch.npu.current_device`. `torch.accelerator` comes first where torch brings the
    device (cuda, xpu, mps), and the vendor's module where a package does; the other of the two is next, and
    the default of `Accelerator` last. On torch's PrivateUse1 the first call decides: a function that raises
    `NotImplementedError`, or names torch.accelerator's, is left out, and `refused` keeps its words. A
    function that differs only in the name of its device parameter gets a closure in between. A member that
    a subclass overrides is left alone, and its `super()` call reaches the vendor.

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
        #: Vendor's functions that raised when they were called and are left out since then, with the reason.
        self.refused: dict[str, str] = {}
        #: What serves each row: of a member always something to call, of the others perhaps `None`.
        self._vendor: dict[str, Any] = {}
        for row in ROWS:
            self._vendor[row.name] = self._bind(row)
        self._trials: dict[torch.dtype, bool] = {}

    # What is there

    def _is_torch_accelerator(self) -> bool:
        """Whether `torch.accelerator` speaks of this device; asking initialises nothing."""
        try:
            device = self._torch.accelerator.current_accelerator()
        except RuntimeError:  # torch finds two that exclude each other
            return False
        return device is not None and device.type == self._device_type

    @cached_property
    def _is_private(self) -> bool:
        """Whether this is torch's renamed PrivateUse1, of whose functions torch promises nothing."""
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    @cached_property
    def _torch_first(self) -> bool:
        """Whether torch's functions come before those of the module, which torch brings too.

        A vendor's own come first: torch_npu's (2.13.0) set the context of a thread, and torch's do not.
        """
        ours = self.backend.vendor_imports == ("torch",) and not self._is_private
        return ours and self._torch_accelerator is not None

    def _lookup(self, name: str) -> Any:
        """Return the vendor's object of that name, or `None`."""
        return getattr(self.device_module, name, None)

    def _functions(self, row: Row) -> list[Any]:
        """The functions that can serve a row, the best first: torch's and the vendor's."""
        if row.needs is Needs.STREAMS and self._stream_class is None:
            return []
        vendors = self._lookup(row.name)
        torchs: Any = self._torch_accelerator if row.in_torch else None
        for name in filter(None, row.in_torch.split(".")):
            torchs = getattr(torchs, name, None)
        if torchs is not None and row.needs is Needs.PAGES:
            torchs = self._where_pages_lock(torchs)
        torch_first = self._torch_first and not row.vendor_first
        in_order = (torchs, vendors) if torch_first else (vendors, torchs)
        return [function for function in in_order if function is not None]

    def _bind(self, row: Row) -> Any:
        """Find what serves a row; it takes the member's place if the calls are the same or can be so."""
        functions = self._functions(row)
        if row.call is Call.PART:
            return functions[0] if functions else None
        if not functions:
            return getattr(super(), row.name)
        if row.needs is Needs.STREAMS and row.call is Call.OWN and self._is_private:
            return functions[0]  # the method asks whether there are streams, which would start the device
        vendors_own = functions[0] == self._lookup(row.name)
        doubtful = row.needs in (Needs.ALLOCATOR, Needs.STREAMS) and not vendors_own
        if row.call is Call.OWN or self._device_type in _TRUSTED or not (self._is_private or doubtful):
            return self._put(row, functions[0])
        return self._put(row, self._first_that_works(row, functions))

    def _put(self, row: Row, function: Any) -> Any:
        """Let `function` serve the row, in the member's place too where the calls are the same."""
        shaped = self._shaped(row, function)
        if self._is_inherited(row.name) and (shaped is not function or self._has_its_calls(row, function)):
            setattr(self, row.name, shaped)
        self._vendor[row.name] = shaped
        return shaped

    def _has_its_calls(self, row: Row, function: Any) -> bool:
        return accepts(function, getattr(super(), row.name)) and (
            row.needs is not Needs.STREAM_CONTEXT or self._lookup("StreamContext") is not None
        )

    def _shaped(self, row: Row, function: Any) -> Any:
        """`function`, with `device_index` for its only argument where the member has it."""
        if row.call is not Call.INDEXED or self._has_its_calls(row, function):
            return function
        return by_index(function, self._checked_index, self._current_index, self.device_guard)

    def _first_that_works(self, row: Row, functions: list[Any]) -> Callable[..., Any]:
        """Give the first that does not raise, decided at the first call; the member's default is the last.

        torch's raise `RuntimeError` where it cannot serve the device; of a vendor's functions only what
        `_is_missing` knows is passed over, as a device that fails raises `RuntimeError` too.
        """
        above = TorchMemory if row.needs is Needs.ALLOCATOR else TorchAccelerator
        default = getattr(super(above, self), row.name)
        vendors = self._lookup(row.name)

        @wraps(default)
        def first(*given: Any, **named: Any) -> Any:
            failures: list[RuntimeError] = []
            for function in [*functions, default]:
                if row.needs is Needs.STREAMS and function is not default and not self._has_streams:
                    continue
                try:
                    answer = self._shaped(row, function)(*given, **named)
                except RuntimeError as error:
                    if function == vendors and not _is_missing(error):
                        raise  # of a device that fails
                    failures.append(error)
                    continue
                # An allocator of another kind than torch's says nothing before its device starts.
                if row.needs is not Needs.ALLOCATOR or self.is_initialized():
                    self._put(row, function)
                    if failures:
                        self.refused[row.name] = str(failures[0])
                return answer
            told = (
                row.needs is not Needs.ALLOCATOR
                and len(failures) > 1
                and isinstance(failures[-1], UnsupportedError)
            )
            raise failures[-2 if told else -1]

        return first

    def _part(self, name: str, *given: Any) -> Any:
        """Ask the vendor's function for a row; `None` without one, and for one that raises."""
        if (ask := self._vendor[name]) is None:
            return None
        try:
            return ask(*given)
        except RuntimeError as error:
            if ask == self._lookup(name) and not self._holds_tensors():
                raise
            self.refused[name] = str(error)
            return None

    def _holds_tensors(self) -> bool:
        """Whether the device works as such, so that what raised is the fault of one function."""
        try:
            self._torch.ones(1, device=self._device_type).cpu()  # one that nobody reads may start nothing
        except RuntimeError:
            return False
        return True

    def _find_streams(self) -> tuple[Any, Any]:
        """The stream and event classes; `None` where there is none."""
        classes = (self._lookup("Stream"), self._lookup("Event"))
        stream, event = (found if isclass(found) else None for found in classes)
        # torch's own classes serve its accelerator, and `stream` needs the one that is a context manager.
        if (
            stream is None
            and self._torch_accelerator is not None
            and hasattr(self._torch.Stream, "__enter__")
        ):
            return self._torch.Stream, event or self._torch.Event
        return stream, event

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
            self._torch.empty(1, device=self._device_type).record_stream(stream)  # else memory has no order
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
            return
        try:
            select(index)
        except RuntimeError as error:
            other = getattr(self._torch_accelerator, "set_device_index", None)
            if other is None or not _is_missing(error):
                raise
            other(index)
            self.refused["set_device"], self._vendor["set_device"] = str(error), other

    def device_guard(self, device_index: Device) -> AbstractContextManager[Any]:
        """A context manager that selects the device, then restores the one before.

        `None` changes nothing. Raises `InvalidDeviceError`, a `ValueError`, when there is no such device. It
        is the vendor's own class where there is one: that does not start a runtime on a device only to select
        it again.
        """
        if device_index is None or self._vendor_device is None:
            return super().device_guard(device_index)
        index = self._checked_index(device_index)
        try:
            guard: AbstractContextManager[Any] = self._vendor_device(index)
        except RuntimeError as error:  # TorchTPU keeps it for torch
            self.refused["device"], self._vendor_device = str(error), None
            return super().device_guard(index)
        return guard

    def device_properties(self, device_index: Device = None) -> DeviceProperties:
        """Properties from `torch.<device_type>.get_device_properties`, as a frozen record."""
        index = self._index(device_index)
        told = self._part("get_device_properties", index)
        if told is None:
            return super().device_properties(index)
        from accel_core.accelerators.records import read_properties

        return read_properties(told, self._total_memory_or_none(index))

    def get_device_capability(self, device_index: Device = None) -> DeviceCapability:
        """Capabilities from `torch.accelerator.get_device_capability`; if it fails, each data type is tried.

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
        if stream is None or not self._has_streams:
            return super().stream(stream)
        context: AbstractContextManager[Any] = self._vendor["stream"](stream)
        return context

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` the current one of its device for this thread, until another is set."""
        # Bound straight where torch brings the vendor's module, which has it under this signature.
        if not self._has_streams:
            return
        if self._torch_accelerator is not None:
            self._torch_accelerator.set_stream(stream)
        elif (select := self._lookup("set_stream")) is not None:
            select(stream)
        else:
            self.stream(stream).__enter__()  # sets it, and is not left

    # Data types

    def is_bf16_supported(self) -> bool:
        """The vendor's word on bfloat16, emulated too; without it, whether a product comes out right.

        That product is tried once, and again later where it failed for another reason than the data type.
        """
        return self._computes("is_bf16_supported", self._torch.bfloat16)

    def is_bf16_native(self) -> bool:
        """Whether the vendor reports bfloat16 without emulation; by default, `is_bf16_supported`."""
        ask = self._vendor["is_bf16_supported"]
        return super().is_bf16_native() if ask is None else self.is_available() and natively(ask)

    def is_fp16_supported(self) -> bool:
        """The vendor's word on float16; without it, whether a product comes out right.

        Tried as for `is_bf16_supported`. A plugin that knows the answer overrides this, so that asking
        starts no device.
        """
        return self._computes("is_fp16_supported", self._torch.float16)

    def is_fp8_supported(self) -> bool:
        """Return the vendor's word on native 8-bit floating point; False without it."""
        ask = self._vendor["is_fp8_supported"]
        return ask is not None and self.is_available() and natively(ask)

    def _computes(self, name: str, dtype: torch.dtype) -> bool:
        if not self.is_available():
            return False
        if (ask := self._vendor[name]) is not None:
            return bool(ask())
        if dtype not in self._trials:
            answer = computes_in(self._torch, self._device_type, dtype)
            if isinstance(answer, Exception):
                import warnings

                warnings.warn(
                    f"{self.name}: whether it computes in {dtype} could not be tried, so the answer is no "
                    f"until the next call: {type(answer).__name__}: {str(answer).partition(chr(10))[0]}",
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

    #: Kept, as torch.compile cannot look into torch's count.
    _counted = 0

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

    def device_count(self) -> int:
        """How many devices torch sees; one that counts none before its start is started to be counted."""
        if not self._counted:
            self._counted = int(super().device_count())
            if not self._counted and self._is_private and self._holds_tensors():
                self._counted = int(super().device_count())
        return self._counted
