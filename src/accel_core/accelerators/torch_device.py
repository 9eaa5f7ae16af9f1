"""`TorchAccelerator`: the interface over any `torch.<device_type>` module; `GenericAccelerator`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cached_property, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from accel_core.accelerators import Accelerator
from accel_core.accelerators.devices import has_parameter, parameters, torchs_device
from accel_core.accelerators.dtypes import computes_in
from accel_core.accelerators.graphs import TorchGraphs
from accel_core.accelerators.memory import TorchMemory
from accel_core.accelerators.streams import torch_stream_class
from accel_core.backend import Backend
from accel_core.errors import BackendUnavailableError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import DeviceCapability, DeviceProperties

#: Types whose memory and streams `torch.accelerator` serves; of others each is tried at its first call.
_TRUSTED = ("cuda", "xpu")


#: Functions of a vendor's module, `torch.<device_type>`, that serve the member of their name (`set_device`
#: serves `_select`), and what `torch.accelerator` calls them: the newest torch that is read, an older one may
#: not have it.
ROWS = {
    "current_device": "current_device_index", "current_stream": "current_stream", "default_stream": "",
    "device_count": "device_count", "empty_cache": "empty_cache",
    "get_rng_state": "random.get_rng_state", "initial_seed": "random.initial_seed",
    "is_current_stream_capturing": "", "is_initialized": "", "manual_seed": "", "manual_seed_all": "",
    "max_memory_allocated": "max_memory_allocated", "max_memory_reserved": "max_memory_reserved",
    "memory_allocated": "memory_allocated", "memory_reserved": "memory_reserved",
    "set_device": "set_device_index", "synchronize": "synchronize",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}  # fmt: skip
#: Each has need of a stream class: without one, the one queue of the default serves.
OF_STREAMS = ("current_stream", "default_stream")
#: The vendor's function comes before torch's: it tells more, or is what torch's own calls.
_VENDOR_FIRST = ("current_stream", "device_count")


def _of_allocator(name: str) -> bool:
    """Whether torch's needs an allocator of torch's kind, and says 0 before the device starts."""
    return "mem" in name or name == "empty_cache"


def accepts(function: Callable[..., Any], member: Callable[..., Any]) -> bool:
    """Whether `function` takes every call that `member` documents: same names, same places."""
    theirs, ours = parameters(function), parameters(member) or []
    if theirs is None or [(p.name, p.kind) for p in theirs[: len(ours)]] != [(p.name, p.kind) for p in ours]:
        return False
    given = sum(p.default is inspect.Parameter.empty for p in ours)  # by every caller
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not inspect.Parameter.empty or p.kind in variadic for p in theirs[given:])


def _natively(ask: Callable[..., Any]) -> bool:
    """A vendor's answer about a data type, without the emulation that several count by default."""
    return bool(ask(including_emulation=False) if has_parameter(ask, "including_emulation") else ask())


def _as_constant(count: Callable[[], int]) -> Callable[[], int]:
    """`count`, asked while torch.compile compiles: torch's own returns no tensor, which breaks a graph."""

    def device_count() -> int:
        return count()

    # What torch.compiler.assume_constant_result sets; that imports Dynamo, a second.
    device_count._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return device_count


def _is_missing(error: RuntimeError) -> bool:
    """Whether a vendor's function is none for us: it names torch's instead, as TorchTPU's do."""
    return isinstance(error, NotImplementedError) or "torch.accelerator" in str(error)


class TorchAccelerator(TorchGraphs, TorchMemory, Accelerator):
    """An accelerator whose vendor provides a module `torch.<device_type>`, as most do.

    A member becomes a function of torch's or of the vendor's, as an attribute of this object:
    `acc.current_device is torch.npu.current_device`. If torch itself brings the device (cuda, xpu, mps),
    torch.accelerator's function comes first, else the vendor module's; if a package brings it, the vendor
    module's, else torch.accelerator's. If neither has one, the default of `Accelerator` stays.

    On torch's PrivateUse1 a vendor's function may be unfinished: if its first call raises
    `NotImplementedError`, or an error that names torch.accelerator's, it is not used again, and `refused` has
    the message.

    A function that differs only in the names of its parameters is wrapped. A member that a subclass overrides
    is left alone, and its `super()` call reaches the vendor's function. Without a declaration, the device is
    the one that `torch.accelerator` reports.

    Raises `BackendUnavailableError` if torch has no such module: import the vendor's package first.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        super().__init__(backend)
        self.device_module = getattr(self._torch, self._device_type, None)
        if self.device_module is None:
            raise BackendUnavailableError(
                f"{self.name}: torch has no module torch.{self._device_type}; "
                f"import {' or '.join(self.backend.vendor_imports)} before constructing {type(self).__name__}"
            )
        self._torch_accelerator = self._torch.accelerator if self._is_torch_accelerator() else None
        self._stream_class, self._event_class = self._find_streams()
        guard: Any = self._lookup("device")
        self._vendor_device: Any = guard if inspect.isclass(guard) and hasattr(guard, "__enter__") else None
        self.refused = {}
        #: What serves each row, also where a subclass overrides the member.
        self._vendor: dict[str, Callable[..., Any]] = {}
        for name in ROWS:
            self._bind(name)
        # A `StreamContext` takes `None`: torch's modules and those that follow them have one.
        usable = {"stream": self._lookup("StreamContext"), "set_stream": self._stream_class}
        for name in ("stream",) if self._is_private else usable:
            if usable[name] and accepts(self._lookup(name), getattr(super(), name)):
                self._put(name, self._lookup(name))
        self._trials: dict[torch.dtype, bool] = {}

    # What is there

    def _torch_device_type(self) -> str:
        return super()._torch_device_type() if self._is_declared else self._torchs_own_type()

    def _torchs_own_type(self) -> str:
        try:
            device = torchs_device(self._torch)
        except RuntimeError as error:  # torch finds two that exclude each other
            raise BackendUnavailableError(
                f"{self.name}: torch cannot name its accelerator: {error}"
            ) from error
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)

    def _is_torch_accelerator(self) -> bool:
        """Whether `torch.accelerator` speaks of this device; asking initialises nothing."""
        with suppress(RuntimeError):
            device = torchs_device(self._torch, counted=False)
            return device is not None and device.type == self._device_type
        return False

    @cached_property
    def _is_private(self) -> bool:
        """Whether this is torch's renamed PrivateUse1, of whose functions torch promises nothing."""
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    # Binding

    def _functions(self, name: str) -> list[Callable[..., Any]]:
        """The functions that can serve a row, the best first: torch's and the vendor's.

        torch's come first where torch brings the module too. A vendor's own come before torch's: torch_npu's
        (2.13.0) set the context of a thread, and torch's do not.
        """
        if name in OF_STREAMS and self._stream_class is None:
            return []
        vendors, torchs = self._lookup(name), None
        with suppress(AttributeError):
            torchs = attrgetter(ROWS[name])(self._torch_accelerator)
        is_torchs = self.backend.vendor_imports == ("torch",) and not self._is_private
        in_order = (torchs, vendors) if is_torchs and name not in _VENDOR_FIRST else (vendors, torchs)
        return [function for function in in_order if function is not None]

    def _bind(self, name: str) -> None:
        """Find what serves a row: a function, one that the first call finds, or the default."""
        member = "_select" if name == "set_device" else name
        functions, serves = self._functions(name), getattr(super(), member)
        if functions:
            doubtful = (_of_allocator(name) or name in OF_STREAMS) and functions[0] != self._lookup(name)
            if self._device_type in _TRUSTED or not (self._is_private or doubtful):
                serves = self._shaped(functions[0], serves)
            else:
                serves = self._first_that_works(name, functions, serves)
        self._put(member, _as_constant(serves) if name == "device_count" else serves)

    def _put(self, name: str, function: Callable[..., Any]) -> None:
        """Let `function` serve the row, in the member's place too where no subclass overrides it."""
        self._vendor[name] = function
        if getattr(type(self), name) is getattr(TorchAccelerator, name):
            setattr(self, name, function)

    def _shaped(self, function: Callable[..., Any], default: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, called as `default` is: by itself where the calls are the same."""
        ours = [parameter.name for parameter in parameters(default) or ()]
        if not ours or accepts(function, default):
            return function
        if ours == ["device_index"]:
            return self._by_index(function)
        return lambda seed: function(seed)  # noqa: PLW0108 - the one other argument, by our name

    def _by_index(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(device)` as `member(device_index=None)`.

        One that needs a device is given the current one, and one that takes none runs with it selected. Else
        the vendor's own default stands for the current device: `None`, or a string such as "cuda".
        """
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        given = parameters(function)
        places = [parameter for parameter in given or () if parameter.kind not in named]
        needs_one = bool(places) and places[0].default is inspect.Parameter.empty

        def member(device_index: Device = None) -> Any:
            if device_index is None:
                # Whatever a subclass makes of `current_device`.
                return function(int(self._vendor["current_device"]())) if needs_one else function()
            index = self._checked_index(device_index)
            if places or given is None:
                return function(index)
            with self.device_guard(index):
                return function()

        return member

    def _first_that_works(
        self, name: str, functions: list[Callable[..., Any]], default: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Give the first that does not raise, decided at the first call; the member's default is the last.

        torch's raise `RuntimeError` where it cannot serve the device; of a vendor's functions only what
        `_is_missing` knows is passed over, as a device that fails raises `RuntimeError` too.
        """

        @wraps(default)
        def first(*given: Any, **named: Any) -> Any:
            failures: list[RuntimeError] = []
            usable = [] if name in OF_STREAMS and not self._has_streams else functions
            for function in (*usable, default):
                shaped = self._shaped(function, default)
                try:
                    answer = shaped(*given, **named)
                except RuntimeError as error:
                    if function == self._lookup(name) and not _is_missing(error):
                        raise  # of a device that fails
                    failures.append(error)
                    continue
                # An allocator of another kind than torch's says nothing before its device starts.
                if not _of_allocator(name) or self.is_initialized():
                    self._put(default.__name__, shaped)
                    if failures:
                        self.refused[name] = str(failures[0])
                return answer
            # The default's "not supported" says less than what torch raised, if a device failed in it.
            raise failures[-1] if _of_allocator(name) else failures[-2:][0]

        return first

    def _find_streams(self) -> tuple[Any, Any]:
        """The stream and event classes; `None` where there is none."""
        found = map(self._lookup, ("Stream", "Event"))
        stream, event = (kind if inspect.isclass(kind) else None for kind in found)
        # torch's own classes serve its accelerator, and `stream` needs the one that is a context manager.
        if stream or self._torch_accelerator is None or not hasattr(self._torch.Stream, "__enter__"):
            return stream, event
        return self._torch.Stream, event or self._torch.Event

    @cached_property
    def _has_streams(self) -> bool:
        """Whether streams and events work; tried where torch's own classes serve, which promise nothing.

        Whether a device has brought its streams into torch is known by use alone.
        """
        if self._stream_class is not self._torch.Stream:
            return self._stream_class is not None
        with suppress(RuntimeError, TypeError):  # torch's words for what a backend does not implement
            stream, event = self._stream_class(), self._torch.Event()
            event.record(stream)
            event.synchronize()
            stream.synchronize()
            self._torch.empty(1, device=self._device_type).record_stream(stream)  # else memory has no order
            return True
        return False

    # Devices

    def _selecting(self, index: int) -> Any:
        """By the vendor's class, if it has one: that does not start a device only to select it again."""
        if self._vendor_device is not None:
            try:
                return self._vendor_device(index)
            except RuntimeError as error:  # TorchTPU keeps it for torch
                self.refused["device"], self._vendor_device = str(error), None
        return super()._selecting(index)

    def device_properties(self, device_index: Device = None) -> DeviceProperties:
        """Return the properties from `torch.<device_type>.get_device_properties`, as a frozen record."""
        index = self._index(device_index)
        told = self._part("get_device_properties", index)
        if told is None:
            return super().device_properties(index)
        from accel_core.accelerators.records import read_properties

        return read_properties(told, self._if_supported(self.total_memory, index))

    def get_device_capability(self, device_index: Device = None) -> DeviceCapability:
        """Return the data types that tensors on the device can have, from `torch.accelerator`, else by trial.

        A vendor's function of this name is not used: it returns a compute capability, which
        `device_properties()` has.
        """
        index = self._index(device_index)
        # Of an older torch; torch's word for a device that does not tell.
        with suppress(AttributeError, RuntimeError):
            told = self._torch_accelerator.get_device_capability(index)
            return {"supported_dtypes": set(told["supported_dtypes"])}
        return super().get_device_capability(index)

    # Random numbers

    def default_generator(self, device_index: Device) -> torch.Generator:
        """Return the device's generator from the vendor's `default_generators`; may initialise the device.

        `None` means the current device. Raises `InvalidDeviceError`, a `ValueError`, if there is no such
        device.
        """
        index = self._index(device_index)
        if not self._generators():
            # Without an initialiser of its own, asking for the current device starts a vendor's runtime.
            (self._lookup("init") or self._lookup("_lazy_init") or self.current_device)()
        if not (generators := self._generators()):
            return super().default_generator(index)
        if index >= len(generators):  # the vendor has fewer than devices
            raise self._unsupported("default_generator", f"device {index} has no generator of its own")
        return generators[index]

    def _generators(self) -> Any:
        # Read anew: vendors put another tuple in place when they initialise. Habana keeps it in `random`.
        random = getattr(self.device_module, "random", None)
        return self._lookup("default_generators") or getattr(random, "default_generators", ())

    def _restore_rng_state(self, state: torch.Tensor, device_index: Device) -> None:
        restore = self._lookup("set_rng_state")
        if restore is None:
            super()._restore_rng_state(state, device_index)
        else:
            restore(state, *(() if device_index is None else (self._checked_index(device_index),)))

    # Streams

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class, to be called as `Event(enable_timing=True)`; else the default."""
        # Metal has events of its own, and no streams; torch's own are tried with its streams.
        own = self._event_class is not self._torch.Event or self._has_streams
        return (self._event_class if own else None) or super().Event

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class, which accepts `device` and `priority`; else the default."""
        if self._has_streams:
            return self._stream_class
        one_queue = super().Stream
        if self._torch_accelerator is None:
            return one_queue
        return torch_stream_class(one_queue, self._torch, self._device_type)

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Return a context manager that makes `stream` the current stream; `None` changes nothing."""
        enter = self._lookup("stream")
        if stream is None or enter is None or not self._has_streams:
            return super().stream(stream)
        return enter(stream)

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` this thread's current stream of its device, until another one is set."""
        if not self._has_streams:
            return
        select = self._lookup("set_stream")
        if select is None or self._is_private:
            select = getattr(self._torch_accelerator, "set_stream", select)
        if select is not None:
            select(stream)
        else:
            self.stream(stream).__enter__()  # sets it, and is not left

    # Data types

    def is_bf16_supported(self) -> bool:
        """Return the vendor's answer for bfloat16, emulated or not; without one, try a matrix product.

        The product is computed once, and again later if it failed for another reason than the data type.
        """
        return self._computes("is_bf16_supported", self._torch.bfloat16)

    def is_bf16_native(self) -> bool:
        """Whether the vendor reports bfloat16 without emulation; without such a report,
        `is_bf16_supported()`.
        """
        ask = self._lookup("is_bf16_supported")
        return super().is_bf16_native() if ask is None else self.is_available() and _natively(ask)

    def is_fp16_supported(self) -> bool:
        """Return the vendor's answer for float16; without one, try a matrix product as for bfloat16.

        A plugin that knows the answer overrides this, so that asking does not start the device.
        """
        return self._computes("is_fp16_supported", self._torch.float16)

    def is_fp8_supported(self) -> bool:
        """Return the vendor's answer for 8-bit floating point in hardware; False without one."""
        ask = self._lookup("is_fp8_supported")
        return ask is not None and self.is_available() and _natively(ask)

    def _computes(self, name: str, dtype: torch.dtype) -> bool:
        if not self.is_available():
            return False
        if (ask := self._lookup(name)) is not None:
            return bool(ask())
        if dtype not in self._trials:
            answer = computes_in(self._torch, self._device_type, dtype)
            if isinstance(answer, Exception):
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
        """Call `callback` when the device is initialised; at once if it is, or if the vendor cannot delay
        calls.
        """
        return (self._lookup("_lazy_call") or super().lazy_call)(callback)


def _delegate(name: str) -> Callable[..., Any]:
    """A method that calls what serves the member: an override's `super()` reaches it, also when compiled."""

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *given: Any, **named: Any) -> Any:
        return self._vendor[name](*given, **named)

    return member


for _name in ("_select", *(ROWS.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _delegate(_name))


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` for the device that `torch.accelerator` reports at construction.

    Its name is "generic"; `device_name()` is torch's name of the device. Raises `BackendUnavailableError` if
    torch reports no accelerator.
    """

    def _torch_device_type(self) -> str:
        return self._torchs_own_type()

    def device_count(self) -> int:
        """Return the number of devices that torch sees; a device that reports 0 before its start is
        started.
        """
        if not super().device_count() and self._is_private:
            self._holds_tensors()
        return int(super().device_count())
