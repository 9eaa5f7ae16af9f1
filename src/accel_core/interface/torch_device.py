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
from accel_core.interface.devices import (
    Device,
    current_torch_accelerator,
    parameters,
)
from accel_core.interface.signatures import name_in_errors
from accel_core.torch_import import FREE_SLOT

Function = Callable[..., Any]
#: Types whose memory and streams `torch.accelerator` serves. For other types, each
#: function of torch's is tried at its first call.
_TRUSTED = ("cuda", "xpu")

#: Members that the function of the same name in the vendor's module,
#: `torch.<device_type>`, can serve (`set_device` serves `_select`), and its name in the
#: newest `torch.accelerator`: an older torch may lack it.
FORWARDED = {
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
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
    "set_device": "set_device_index",
    "set_stream": "set_stream",
    "stream": "",
    "synchronize": "synchronize",
}
#: Members that need a stream class: without one, the default's only queue serves.
STREAM_MEMBERS = ("current_stream", "default_stream", "set_stream", "stream")
#: Beginnings of the members that only query, and change nothing.
_QUERIES = ("is_", "memory_", "max_memory_", "get_", "initial_")
#: Members for which the vendor's function is preferred to torch's: it reports more, or
#: torch's calls it.
_VENDOR_FIRST = ("current_stream", "device_count")


def _needs_torch_allocator(name: str) -> bool:
    """Return whether torch's function works only on an allocator that torch can use.

    Such a function returns 0 before the device starts.
    """
    return "mem" in name or name == "empty_cache"


def accepts(function: Function, member: Function) -> bool:
    """Return whether `function` accepts every call that `member` documents: same names
    in the same order.
    """
    actual = parameters(function)
    documented = parameters(member) or []
    if actual is None:
        return False
    head = [(p.name, p.kind) for p in actual[: len(documented)]]
    if head != [(p.name, p.kind) for p in documented]:
        return False
    required = [p for p in documented if p.default is inspect.Parameter.empty]
    return not any(_is_required(p) for p in actual[len(required) :])


def _is_required(parameter: inspect.Parameter) -> bool:
    """Return whether every call must give the parameter a value."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    has_default = parameter.default is not inspect.Parameter.empty
    return not has_default and parameter.kind not in variadic


def _as_constant(count: Callable[[], int]) -> Callable[[], int]:
    """Return `count` as a function that torch.compile evaluates while it compiles.

    torch's own function returns no tensor, which breaks a graph.
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
            packages = " or ".join(self.backend.vendor_imports)
            raise BackendUnavailableError(
                f"{self.name}: torch has no module torch.{self._device_type}; import "
                f"{packages} before constructing {type(self).__name__}"
            )
        if self._current_torch_type() == self._device_type:
            self._torch_accelerator = self._torch.accelerator
        self._stream_class, self._event_class = self._find_streams()
        #: The function that serves each forwarded member, also if a subclass overrides
        #: the member.
        self._vendor: dict[str, Function] = {}
        for name in FORWARDED:
            self._bind_member(name)

    # What is there

    def _torch_device_type(self) -> str:
        # `generic` declares the free slot.
        if self._is_declared and self.backend.device_type != FREE_SLOT:
            return super()._torch_device_type()
        try:
            device = current_torch_accelerator(self._torch)
        except RuntimeError as error:  # torch finds two that exclude each other
            raise BackendUnavailableError(
                f"{self.name}: torch cannot name its accelerator: {error}"
            ) from error
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)

    def _current_torch_type(self) -> str | None:
        """The type of `torch.accelerator`'s device; this initialises nothing."""
        with suppress(RuntimeError):
            device = current_torch_accelerator(self._torch, check_count=False)
            return device.type if device is not None else None
        return None

    @cached_property
    def _is_private(self) -> bool:
        """Whether this device is torch's renamed PrivateUse1; torch's functions may not
        work for it.
        """
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    # Binding

    def _functions(self, name: str) -> list[Function]:
        """Return the functions that can implement a forwarded member, the preferred one
        first.

        torch.accelerator's function is preferred if torch itself contains the device's
        module. Otherwise the vendor's is: torch_npu's functions (2.13.0) set the
        context of a thread, and torch's do not.
        """
        if name in STREAM_MEMBERS and self._stream_class is None:
            return []
        functions = [self._lookup(name), self._torch_function(name)]
        if self._prefers_torch(name):
            functions.reverse()
        return [function for function in functions if function is not None]

    def _torch_function(self, name: str) -> Function | None:
        """Return torch.accelerator's function for a forwarded member; `None` if there
        is none.
        """
        with suppress(AttributeError):
            function: Function = attrgetter(FORWARDED[name])(self._torch_accelerator)
            return function
        return None

    def _prefers_torch(self, name: str) -> bool:
        """Return whether torch.accelerator's function comes before the vendor's."""
        if name == "set_stream":
            return self._is_private
        if self._is_private or name in _VENDOR_FIRST:
            return False
        return self.backend.vendor_imports == ("torch",)

    def _bind_member(self, name: str) -> None:
        """Bind a forwarded member to a function, to a trial of several functions at the
        first call, or to the default.
        """
        member = "_select" if name == "set_device" else name
        function_to_bind: Function = getattr(super(), member)
        functions = self._functions(name)
        if functions and self._is_reliable(name, functions[0]):
            function_to_bind = self._as_member(functions[0], function_to_bind)
        elif functions:
            function_to_bind = self._first_that_works(name, functions, function_to_bind)
        if name == "device_count":
            function_to_bind = _as_constant(function_to_bind)
        self._install(member, function_to_bind)

    def _is_reliable(self, name: str, function: Function) -> bool:
        """Return whether the function can be bound without a trial at its first call.
        """
        if self._device_type in _TRUSTED:
            return True
        if self._is_private:
            return False
        is_conditional = _needs_torch_allocator(name) or name in STREAM_MEMBERS
        return not is_conditional or function == self._lookup(name)

    def _install(self, name: str, function: Function) -> None:
        """Bind `function`; also set it on the instance unless a subclass overrides the
        member.
        """
        if name in FORWARDED and name.startswith(_QUERIES):
            function = self._refusal_as_unsupported(name, function)
        self._vendor[name] = function
        if getattr(type(self), name) is getattr(TorchAccelerator, name):
            setattr(self, name, function)

    def _as_member(self, function: Function, default: Function) -> Function:
        """Return `function` with the parameters of the member `default`; unwrapped if
        they are the same.
        """
        names = [parameter.name for parameter in parameters(default) or ()]
        member_function: Function
        if names == ["device_index", "device"]:
            member_function = self._with_device_parameters(function)
        elif names == ["stream"]:
            # A `StreamContext` takes `None`: torch's modules and those that follow them
            # have one.
            if self._lookup("StreamContext") and accepts(function, default):
                return function
            member_function = _accepting_no_stream(function)
        elif not names or accepts(function, default):
            return function
        else:
            member_function = _with_seed_parameter(function)
        name_in_errors(member_function, default.__name__)
        return member_function

    def _with_device_parameters(self, function: Function) -> Function:
        """Return `function(device)` as `member(device_index=None, device=None)`.

        Without a device, a function that requires one gets the current device, and any
        other function uses the vendor's default. A function without a device parameter
        runs with the device selected.
        """
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        known = parameters(function)
        positional = [p for p in known or () if p.kind not in by_name]
        takes_device = known is None or bool(positional)
        needs_device = bool(positional) and (
            positional[0].default is inspect.Parameter.empty
        )

        def member(device_index: Device = None, device: Device = None) -> Any:
            if device is not None:
                device_index = self._one_device(device_index, device)
            if device_index is None:
                if not needs_device:
                    return function()
                # The vendor's, whatever a subclass makes of `current_device`.
                return function(int(self._vendor["current_device"]()))
            index = self._checked_index(device_index)
            if takes_device:
                return function(index)
            with self.device_guard(index):
                return function()

        return member

    def _first_that_works(
        self, name: str, functions: list[Function], default: Function
    ) -> Function:
        """Return a function that tries `functions` in order at its first call, and
        `default` last.

        torch's functions raise `RuntimeError` if they do not support the device. A
        vendor's function is skipped only if it is unfinished (`_is_unfinished`),
        because a device that fails raises `RuntimeError` too.
        """

        @wraps(default)
        def first(*args: Any, **kwargs: Any) -> Any:
            candidates = [*functions, default]
            if name in STREAM_MEMBERS and not self._has_streams:
                candidates = [default]
            failures: list[RuntimeError] = []
            for function in candidates:
                member_function = self._as_member(function, default)
                try:
                    result = member_function(*args, **kwargs)
                except RuntimeError as error:
                    is_vendors = function == self._lookup(name)
                    if is_vendors and not _is_unfinished(error):
                        raise
                    failures.append(error)
                    continue
                self._install_tried(name, default.__name__, member_function, failures)
                return result
            raise _most_informative(name, failures)

        return first

    def _install_tried(
        self, name: str, member: str, function: Function, failures: list[RuntimeError]
    ) -> None:
        """Install the function that worked, and record the error of an earlier
        function.
        """
        if _needs_torch_allocator(name) and not self.is_initialized():
            return  # no proof: without an allocator it would have returned 0 too
        self._install(member, function)
        if failures:
            self.refused[name] = str(failures[0])

    def _find_streams(self) -> tuple[Any, Any]:
        """Return the stream class and the event class; `None` for a class that does not
        exist.
        """
        stream, event = self._lookup("Stream"), self._lookup("Event")
        if not inspect.isclass(stream):
            stream = None
        if not inspect.isclass(event):
            event = None
        # torch's own classes serve its accelerator; `stream` needs the class that is a
        # context manager, which an older torch lacks.
        has_torch_accelerator = self._torch_accelerator is not None
        if (
            stream is None
            and has_torch_accelerator
            and hasattr(self._torch.Stream, "__enter__")
        ):
            return self._torch.Stream, event or self._torch.Event
        return stream, event


def _accepting_no_stream(function: Function) -> Function:
    """Return `function` as the member `stream`, which also accepts `None`."""

    def member(stream: Any) -> Any:
        return nullcontext() if stream is None else function(stream)

    return member


def _with_seed_parameter(function: Function) -> Function:
    """Return `function` as a member with the parameter `seed`, which vendors name
    differently.
    """

    def member(seed: int) -> Any:
        return function(seed)

    return member


def _is_unfinished(error: RuntimeError) -> bool:
    """Return whether a vendor's function refers to torch.accelerator's, as TorchTPU's
    do, or is not implemented.
    """
    return isinstance(error, NotImplementedError) or "torch.accelerator" in str(error)


def _most_informative(name: str, failures: list[RuntimeError]) -> RuntimeError:
    """Return the error to raise when every function failed; the last is the default's.

    If a device failed, torch's error says more than the default's "not supported".
    """
    is_not_implemented = isinstance(failures[-1], NotImplementedError)
    if is_not_implemented and not _needs_torch_allocator(name) and len(failures) > 1:
        return failures[-2]
    return failures[-1]


def _delegate(name: str) -> Function:
    """Return a method that calls the bound function; an override's `super()` call
    reaches it, also when compiled.
    """

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._vendor[name](*args, **kwargs)

    return member


for _name in ("_select", *(FORWARDED.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _delegate(_name))


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` for the device that `torch.accelerator` reports at
    construction.

    Its name is "generic"; `device_name()` is torch's name of the device. Raises
    `BackendUnavailableError` if torch reports no accelerator.
    """

    def device_count(self) -> int:
        """Return the number of devices that torch sees; a device that reports 0 before
        it starts is started first.
        """
        if not super().device_count() and self._is_private:
            self._holds_tensors()  # making a tensor starts the device
        return int(super().device_count())
