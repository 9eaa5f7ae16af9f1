"""`TorchAccelerator`: the interface over any `torch.<device_type>` module;
`GenericAccelerator`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cached_property, wraps
from operator import attrgetter
from typing import Any

from accel_core.backend import Backend
from accel_core.errors import BackendUnavailableError
from accel_core.interface import Accelerator
from accel_core.interface.devices import Device, parameters, torchs_device
from accel_core.torch_import import FREE_SLOT

Function = Callable[..., Any]
#: Types whose memory and streams `torch.accelerator` serves; of others each is tried at
#: its first call.
_TRUSTED = ("cuda", "xpu")


#: Functions of a vendor's module, `torch.<device_type>`, that serve the member of their
#: name (`set_device` serves `_select`), and what `torch.accelerator` calls them: the
#: newest torch that is read, an older one may not have it.
ROWS = {
    "current_device": "current_device_index",
    "current_stream": "current_stream",
    "default_stream": "",
    "device_count": "device_count",
    "empty_cache": "empty_cache",
    "get_rng_state": "random.get_rng_state",
    "initial_seed": "random.initial_seed",
    "is_current_stream_capturing": "",
    "is_initialized": "",
    "manual_seed": "",
    "manual_seed_all": "",
    "max_memory_allocated": "max_memory_allocated",
    "max_memory_reserved": "max_memory_reserved",
    "memory_allocated": "memory_allocated",
    "memory_reserved": "memory_reserved",
    "set_device": "set_device_index",
    "set_stream": "set_stream",
    "stream": "",
    "synchronize": "synchronize",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}
#: Each has need of a stream class: without one, the one queue of the default serves.
OF_STREAMS = ("current_stream", "default_stream", "set_stream", "stream")
#: Rows that only ask. `is_initialized` and its like are answered whatever a vendor
#: raises.
_QUESTIONS = tuple(
    n
    for n in ROWS
    if n.startswith(("is_", "memory_", "max_memory_", "get_", "initial_"))
)
#: The vendor's function comes before torch's: it tells more, or is what torch's own
#: calls.
_VENDOR_FIRST = ("current_stream", "device_count")


def _of_allocator(name: str) -> bool:
    """Whether torch's needs an allocator of torch's kind, and says 0 before the device
    starts.
    """
    return "mem" in name or name == "empty_cache"


def accepts(function: Function, member: Function) -> bool:
    """Whether `function` takes every call that `member` documents: same names, same
    places.
    """
    theirs, ours = parameters(function), parameters(member) or []
    if theirs is None or [(p.name, p.kind) for p in theirs[: len(ours)]] != [
        (p.name, p.kind) for p in ours
    ]:
        return False
    given = sum(p.default is inspect.Parameter.empty for p in ours)  # by every caller
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(
        p.default is not inspect.Parameter.empty or p.kind in variadic
        for p in theirs[given:]
    )


def _as_constant(count: Callable[[], int]) -> Callable[[], int]:
    """`count`, asked while torch.compile compiles: torch's own returns no tensor, which
    breaks a graph.
    """

    def device_count() -> int:
        return count()

    # What torch.compiler.assume_constant_result sets; that imports Dynamo, a second.
    device_count._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return device_count


class TorchAccelerator(Accelerator):
    """An accelerator whose vendor provides a module `torch.<device_type>`, as most do.

    A member becomes a function of torch's or of the vendor's, as an attribute of this
    object: `acc.current_device is torch.npu.current_device`. If torch itself brings the
    device (cuda, xpu, mps), torch.accelerator's function comes first, else the vendor
    module's; if a package brings it, the vendor module's, else torch.accelerator's. If
    neither has one, the default of `Accelerator` stays.

    A function that only answers a question is wrapped: if the driver refuses it and the
    device works, the member raises `UnsupportedError`, and an `is_…` member returns
    False.

    On torch's PrivateUse1 a vendor's function may be unfinished: if its first call
    raises `NotImplementedError`, or an error that names torch.accelerator's, it is not
    used again, and `refused` has the message.

    A function that differs only in the names of its parameters is wrapped. A member
    that a subclass overrides is left alone, and its `super()` call reaches the vendor's
    function. Without a declaration, the device is the one that `torch.accelerator`
    reports.

    Raises `BackendUnavailableError` if torch has no such module: import the vendor's
    package first.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        super().__init__(backend)
        self.device_module = getattr(self._torch, self._device_type, None)
        if self.device_module is None:
            raise BackendUnavailableError(
                f"{self.name}: torch has no module torch.{self._device_type}; "
                f"import {' or '.join(self.backend.vendor_imports)} before constructing {type(self).__name__}"
            )
        # Asking initialises nothing.
        torchs = getattr(
            self._if_supported(torchs_device, self._torch, False), "type", None
        )
        self._torch_accelerator = (
            self._torch.accelerator if torchs == self._device_type else None
        )
        self._stream_class, self._event_class = self._find_streams()
        #: What serves each row, also where a subclass overrides the member.
        self._vendor: dict[str, Function] = {}
        for name in ROWS:
            self._bind(name)

    # What is there

    def _torch_device_type(self) -> str:
        if (
            self._is_declared and self.backend.device_type != FREE_SLOT
        ):  # `generic` declares that
            return super()._torch_device_type()
        try:
            device = torchs_device(self._torch)
        except RuntimeError as why:  # torch finds two that exclude each other
            raise BackendUnavailableError(
                f"{self.name}: torch cannot name its accelerator: {why}"
            ) from why
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)

    @cached_property
    def _is_private(self) -> bool:
        """Whether this is torch's renamed PrivateUse1, of whose functions torch
        promises nothing.
        """
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    # Binding

    def _functions(self, name: str) -> list[Function]:
        """The functions that can serve a row, the best first: torch's and the vendor's.

        torch's come first where torch brings the module too. A vendor's own come before
        torch's: torch_npu's (2.13.0) set the context of a thread, and torch's do not.
        """
        if name in OF_STREAMS and self._stream_class is None:
            return []
        vendors, torchs = self._lookup(name), None
        with suppress(AttributeError):
            torchs = attrgetter(ROWS[name])(self._torch_accelerator)
        is_torchs = self.backend.vendor_imports == ("torch",) and not self._is_private
        torchs_first = (
            self._is_private
            if name == "set_stream"
            else is_torchs and name not in _VENDOR_FIRST
        )
        in_order = (torchs, vendors) if torchs_first else (vendors, torchs)
        return [function for function in in_order if function is not None]

    def _bind(self, name: str) -> None:
        """Find what serves a row: a function, one that the first call finds, or the
        default.
        """
        member = "_select" if name == "set_device" else name
        functions, serves = self._functions(name), getattr(super(), member)
        if functions:
            doubtful = (_of_allocator(name) or name in OF_STREAMS) and functions[
                0
            ] != self._lookup(name)
            if self._device_type in _TRUSTED or not (self._is_private or doubtful):
                serves = self._shaped(functions[0], serves)
            else:
                serves = self._first_that_works(name, functions, serves)
        self._put(member, _as_constant(serves) if name == "device_count" else serves)

    def _put(self, name: str, function: Function) -> None:
        """Let `function` serve the row, in the member's place too where no subclass
        overrides it.
        """
        if name in _QUESTIONS:
            function = self._asking(name, function)
        self._vendor[name] = function
        if getattr(type(self), name) is getattr(TorchAccelerator, name):
            setattr(self, name, function)

    def _shaped(self, function: Function, default: Function) -> Function:
        """`function`, called as `default` is: by itself where the calls are the same."""
        ours = [parameter.name for parameter in parameters(default) or ()]
        # A `StreamContext` takes `None`: torch's modules and those that follow them
        # have one.
        if ours == ["stream"] and not (
            self._lookup("StreamContext") and accepts(function, default)
        ):
            return lambda stream: nullcontext() if stream is None else function(stream)
        if not ours or accepts(function, default):
            return function
        # Else of a seed, the one other argument, by our name.
        return (
            self._by_index(function)
            if ours == ["device_index"]
            else lambda seed: function(seed)
        )  # noqa: PLW0108

    def _by_index(self, function: Function) -> Function:
        """`function(device)` as `member(device_index=None)`.

        One that needs a device is given the current one, and one that takes none runs
        with it selected. Else the vendor's own default stands for the current device:
        `None`, or a string such as "cuda".
        """
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        given = parameters(function)
        places = [parameter for parameter in given or () if parameter.kind not in named]
        needs_one = bool(places) and places[0].default is inspect.Parameter.empty

        def member(device_index: Device = None) -> Any:
            if device_index is None:
                # Whatever a subclass makes of `current_device`.
                return (
                    function(int(self._vendor["current_device"]()))
                    if needs_one
                    else function()
                )
            index = self._checked_index(device_index)
            if places or given is None:
                return function(index)
            with self.device_guard(index):
                return function()

        return member

    def _first_that_works(
        self, name: str, functions: list[Function], default: Function
    ) -> Function:
        """Give the first that does not raise, decided at the first call; the member's
        default is the last.

        torch's raise `RuntimeError` where it cannot serve the device. A vendor's is
        passed over where it is none for us, as it names torch's instead (TorchTPU's
        do); a device that fails raises `RuntimeError` too.
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
                    is_none = isinstance(
                        error, NotImplementedError
                    ) or "torch.accelerator" in str(error)
                    if function == self._lookup(name) and not is_none:
                        raise  # of a device that fails
                    failures.append(error)
                    continue
                # An allocator of another kind than torch's says nothing before its
                # device starts.
                if not _of_allocator(name) or self.is_initialized():
                    self._put(default.__name__, shaped)
                    if failures:
                        self.refused[name] = str(failures[0])
                return answer
            # The default's "not supported" says less than what torch raised, if a
            # device failed in it.
            says_less = isinstance(
                failures[-1], NotImplementedError
            ) and not _of_allocator(name)
            raise failures[-2:][0] if says_less else failures[-1]

        return first

    def _find_streams(self) -> tuple[Any, Any]:
        """The stream and event classes; `None` where there is none."""
        found = map(self._lookup, ("Stream", "Event"))
        stream, event = (kind if inspect.isclass(kind) else None for kind in found)
        # torch's own classes serve its accelerator, and `stream` needs the one that is
        # a context manager.
        if (
            stream
            or self._torch_accelerator is None
            or not hasattr(self._torch.Stream, "__enter__")
        ):
            return stream, event
        return self._torch.Stream, event or self._torch.Event


def _delegate(name: str) -> Function:
    """A method that calls what serves the member: an override's `super()` reaches it,
    also when compiled.
    """

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *given: Any, **named: Any) -> Any:
        return self._vendor[name](*given, **named)

    return member


for _name in ("_select", *(ROWS.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _delegate(_name))


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` for the device that `torch.accelerator` reports at
    construction.

    Its name is "generic"; `device_name()` is torch's name of the device. Raises
    `BackendUnavailableError` if torch reports no accelerator.
    """

    def device_count(self) -> int:
        """Return the number of devices that torch sees; a device that reports 0 before
        its start is started.
        """
        if not super().device_count() and self._is_private:
            self._holds_tensors()
        return int(super().device_count())
