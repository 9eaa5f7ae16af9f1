"""`TorchAccelerator`, the interface over any `torch.<device_type>` module, and
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
#: Device types whose memory and streams `torch.accelerator` supports. For other types,
#: each function of `torch.accelerator` is tried at its first call.
_TRUSTED = ("cuda", "xpu")

#: Members that a function of the same name in the vendor's module, `torch.<device_type>`,
#: can implement (`set_device` implements `_select`). The value is the function's name in
#: the newest `torch.accelerator`; an older torch may lack the function.
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
#: Members that need a stream class. Without one, they use the default's only queue.
STREAM_MEMBERS = ("current_stream", "default_stream", "set_stream", "stream")
#: Prefixes of the members that only query the device and change nothing.
_QUERIES = ("is_", "memory_", "max_memory_", "get_", "initial_")
#: Members for which the vendor's function is preferred to torch's, because it reports
#: more, or because torch's function calls it.
_VENDOR_FIRST = ("current_stream", "device_count")


def _needs_torch_allocator(name: str) -> bool:
    """Return whether torch's function works only with an allocator that torch supports.

    Such a function returns 0 before the device starts.
    """
    return "mem" in name or name == "empty_cache"


def accepts(function: Function, member: Function) -> bool:
    """Return whether `function` accepts every call that `member` documents: it has the
    same parameters, in the same order.
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
    """Return `count` as a function whose result torch.compile treats as a constant.

    torch's function returns no tensor, which would break a graph.
    """

    def device_count() -> int:
        return count()

    # torch.compiler.assume_constant_result sets this attribute, but it imports Dynamo,
    # which takes a second.
    device_count._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return device_count


class TorchAccelerator(Accelerator):
    """An accelerator whose vendor provides a module `torch.<device_type>`, as most
    vendors do.

    A member is bound to a function of torch or of the vendor, as an attribute of this
    object: `acc.current_device is torch.npu.current_device`. If torch itself contains
    the device (cuda, xpu, mps), the function of torch.accelerator is preferred to the
    function of the vendor's module. If a package adds the device, the function of the
    vendor's module is preferred. If neither exists, the default of `Accelerator` is
    used.

    A function that only queries the device is wrapped. If the driver rejects the query
    although the device works, the member raises `UnsupportedError`, and a member called
    `is_…` returns False.

    For a device in torch's PrivateUse1 slot, a vendor's function may be unfinished. If
    its first call raises `NotImplementedError`, or an error that mentions
    torch.accelerator, the function is not used again, and `refused` contains the
    message.

    A function that differs only in the names of its parameters is wrapped. A member
    that a subclass overrides is not changed, and its `super()` call reaches the
    vendor's function. Without a declaration, the device is the one that
    `torch.accelerator` reports.

    Raises `BackendUnavailableError` if torch has no such module. Import the vendor's
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

    # The device type and its module

    def _torch_device_type(self) -> str:
        # `generic` declares the free slot.
        if self._is_declared and self.backend.device_type != FREE_SLOT:
            return super()._torch_device_type()
        try:
            device = current_torch_accelerator(self._torch)
        # torch has two accelerators that exclude each other.
        except RuntimeError as error:
            raise BackendUnavailableError(
                f"{self.name}: torch cannot determine its accelerator: {error}"
            ) from error
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)

    def _current_torch_type(self) -> str | None:
        """Return the device type of `torch.accelerator`, or `None` if there is none. No
        device is initialized.
        """
        with suppress(RuntimeError):
            device = current_torch_accelerator(self._torch, check_count=False)
            if device is not None:
                return device.type
        return None

    @cached_property
    def _uses_private_use1_slot(self) -> bool:
        """Whether this device uses torch's PrivateUse1 slot. torch's functions may not
        work for it.
        """
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    # Binding

    def _candidate_functions(self, name: str) -> list[Function]:
        """Return the functions that can implement a forwarded member, the preferred
        function first.

        If torch itself contains the device's module, the function of torch.accelerator
        is preferred. Otherwise the vendor's function is preferred: torch_npu's
        functions (2.13.0) set the context of a thread, and torch's functions do not.
        """
        if name in STREAM_MEMBERS and self._stream_class is None:
            return []
        functions = [self._vendor_attribute(name), self._torch_function(name)]
        if self._prefers_torch(name):
            functions.reverse()
        return [function for function in functions if function is not None]

    def _torch_function(self, name: str) -> Function | None:
        """Return torch.accelerator's function for a forwarded member, or `None` if
        there is none.
        """
        with suppress(AttributeError):
            function: Function = attrgetter(FORWARDED[name])(self._torch_accelerator)
            return function
        return None

    def _prefers_torch(self, name: str) -> bool:
        """Return whether the function of torch.accelerator is preferred to the
        vendor's.
        """
        if name == "set_stream":
            return self._uses_private_use1_slot
        if self._uses_private_use1_slot or name in _VENDOR_FIRST:
            return False
        return self.backend.vendor_imports == ("torch",)

    def _bind_member(self, name: str) -> None:
        """Bind a forwarded member to a function, to the default, or to a trial of
        several functions at the first call.
        """
        member = "_select" if name == "set_device" else name
        function_to_bind: Function = getattr(super(), member)
        functions = self._candidate_functions(name)
        if functions and self._is_reliable(name, functions[0]):
            function_to_bind = self._as_member(functions[0], function_to_bind)
        elif functions:
            function_to_bind = self._first_that_works(name, functions, function_to_bind)
        if name == "device_count":
            function_to_bind = _as_constant(function_to_bind)
        self._install(member, function_to_bind)

    def _is_reliable(self, name: str, function: Function) -> bool:
        """Return whether the function can be bound without a trial at its first call."""
        if self._device_type in _TRUSTED:
            return True
        if self._uses_private_use1_slot:
            return False
        is_conditional = _needs_torch_allocator(name) or name in STREAM_MEMBERS
        return not is_conditional or function == self._vendor_attribute(name)

    def _install(self, name: str, function: Function) -> None:
        """Bind `function`. Unless a subclass overrides the member, also set it on the
        instance.
        """
        if name in FORWARDED and name.startswith(_QUERIES):
            function = self._raising_unsupported(name, function)
        self._vendor[name] = function
        if getattr(type(self), name) is getattr(TorchAccelerator, name):
            setattr(self, name, function)

    def _as_member(self, function: Function, default: Function) -> Function:
        """Return `function` with the parameters of the member `default`. It is not
        wrapped if the parameters are the same.
        """
        names = [parameter.name for parameter in parameters(default) or ()]
        member_function: Function
        if names == ["device_index", "device"]:
            member_function = self._with_device_parameters(function)
        elif names == ["stream"]:
            # A `StreamContext` accepts `None`. torch's modules have this class, and so do
            # modules that are modelled on them.
            if self._vendor_attribute("StreamContext") and accepts(function, default):
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

        If the member is called without a device, a function that requires a device gets
        the current device, and any other function uses the vendor's default. A function
        without a device parameter runs with the device selected.
        """
        keyword_kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        all_parameters = parameters(function)
        positional = [p for p in all_parameters or () if p.kind not in keyword_kinds]
        takes_device = all_parameters is None or bool(positional)
        needs_device = (
            bool(positional) and positional[0].default is inspect.Parameter.empty
        )

        def member(device_index: Device = None, device: Device = None) -> Any:
            if device is not None:
                device_index = self._device_argument(device_index, device)
            if device_index is None:
                if not needs_device:
                    return function()
                # The vendor's function, because a subclass may change `current_device`.
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
        """Return a function that, at its first call, tries `functions` in order and
        then `default`.

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
                    is_vendors = function == self._vendor_attribute(name)
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
        """Install the function that worked, and record the error of the function that
        failed first.
        """
        if _needs_torch_allocator(name) and not self.is_initialized():
            return  # Before the allocator starts, such a function returns 0 in any case.
        self._install(member, function)
        if failures:
            self.refused[name] = str(failures[0])

    def _find_streams(self) -> tuple[Any, Any]:
        """Return the stream class and the event class. Each is `None` if it does not exist."""
        stream = self._vendor_attribute("Stream")
        event = self._vendor_attribute("Event")
        if not inspect.isclass(stream):
            stream = None
        if not inspect.isclass(event):
            event = None
        # torch's classes support torch's accelerator. The member `stream` needs a stream
        # class that is a context manager, which it is not in an older torch.
        has_torch_stream = hasattr(self._torch.Stream, "__enter__")
        if (
            stream is not None
            or self._torch_accelerator is None
            or not has_torch_stream
        ):
            return stream, event
        return self._torch.Stream, event or self._torch.Event


def _accepting_no_stream(function: Function) -> Function:
    """Return `function` as the member `stream`, which also accepts `None`."""

    def member(stream: Any) -> Any:
        if stream is None:
            return nullcontext()
        return function(stream)

    return member


def _with_seed_parameter(function: Function) -> Function:
    """Return `function` as a member with the parameter `seed`, whose name differs
    between vendors.
    """

    def member(seed: int) -> Any:
        return function(seed)

    return member


def _is_unfinished(error: RuntimeError) -> bool:
    """Return whether a vendor's function is not implemented, or refers to
    torch.accelerator, as functions of TorchTPU do.
    """
    return isinstance(error, NotImplementedError) or "torch.accelerator" in str(error)


def _most_informative(name: str, failures: list[RuntimeError]) -> RuntimeError:
    """Return the error to raise if every function failed. The last error is the
    default's.

    If the device failed, torch's error is more informative than "not supported", the
    error of the default.
    """
    is_not_implemented = isinstance(failures[-1], NotImplementedError)
    if is_not_implemented and not _needs_torch_allocator(name) and len(failures) > 1:
        return failures[-2]
    return failures[-1]


def _delegate(name: str) -> Function:
    """Return a method that calls the bound function, for an override's `super()` call,
    even in compiled code.
    """

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._vendor[name](*args, **kwargs)

    return member


for _name in ("_select", *(FORWARDED.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _delegate(_name))


class GenericAccelerator(TorchAccelerator):
    """A `TorchAccelerator` for the device that `torch.accelerator` reports when the
    object is constructed.

    Its name is "generic", and `device_name()` returns the device type in torch. Raises
    `BackendUnavailableError` if torch reports no accelerator.
    """

    def device_count(self) -> int:
        """Return the number of devices that torch sees. If the count is 0 until the
        device starts, it is started first.
        """
        if not super().device_count() and self._uses_private_use1_slot:
            self._holds_tensors()  # making a tensor starts the device
        return int(super().device_count())
