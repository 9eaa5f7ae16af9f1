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
from accel_core.interface.signatures import set_name_in_errors
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
#: The kinds of parameters that a call without keywords cannot set.
_KEYWORD_KINDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
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
    leading = actual[: len(documented)]
    documented_forms = [(p.name, p.kind) for p in documented]
    if [(p.name, p.kind) for p in leading] != documented_forms:
        return False
    # A parameter that the documented member does not require must have a default.
    required_count = 0
    for parameter in documented:
        if parameter.default is inspect.Parameter.empty:
            required_count += 1
    return not any(_is_required(p) for p in actual[required_count:])


def _is_required(parameter: inspect.Parameter) -> bool:
    """Return whether every call must give the parameter a value."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    has_default = parameter.default is not inspect.Parameter.empty
    return not has_default and parameter.kind not in variadic


def _marked_as_constant(count: Callable[[], int]) -> Callable[[], int]:
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
        self._stream_class, self._event_class = self._find_stream_and_event_classes()
        #: The function that serves each forwarded member, also if a subclass overrides
        #: the member.
        self._bound_functions: dict[str, Function] = {}
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
        vendor_function = self._vendor_attribute(name)
        torch_function = self._torch_function(name)
        if self._prefers_torch(name):
            functions = [torch_function, vendor_function]
        else:
            functions = [vendor_function, torch_function]
        return [function for function in functions if function is not None]

    def _torch_function(self, name: str) -> Function | None:
        """Return torch.accelerator's function for a forwarded member, or `None` if
        there is none.
        """
        torch_name = FORWARDED[name]  # such as "random.get_rng_state"
        with suppress(AttributeError):
            function: Function = attrgetter(torch_name)(self._torch_accelerator)
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
        default: Function = getattr(super(), member)
        functions = self._candidate_functions(name)
        if not functions:
            bound_function = default
        elif self._is_reliable(name, functions[0]):
            bound_function = self._as_member(functions[0], default)
        else:
            bound_function = self._try_at_first_call(name, functions, default)
        if name == "device_count":
            bound_function = _marked_as_constant(bound_function)
        self._set_member(member, bound_function)

    def _is_reliable(self, name: str, function: Function) -> bool:
        """Return whether the function can be bound without a trial at its first call."""
        if self._device_type in _TRUSTED:
            return True
        if self._uses_private_use1_slot:  # The vendor's function may be unfinished.
            return False
        if function == self._vendor_attribute(name):
            return True
        # torch's functions for memory and streams do not support every device.
        return not _needs_torch_allocator(name) and name not in STREAM_MEMBERS

    def _set_member(self, name: str, function: Function) -> None:
        """Bind `function`. Unless a subclass overrides the member, also set it on the
        instance.
        """
        if name in FORWARDED and name.startswith(_QUERIES):
            function = self._with_unsupported_error(name, function)
        self._bound_functions[name] = function
        is_overridden = getattr(type(self), name) is not getattr(TorchAccelerator, name)
        if not is_overridden:
            setattr(self, name, function)

    def _as_member(self, function: Function, default: Function) -> Function:
        """Return `function` with the parameters of the member `default`. It is not
        wrapped if the parameters are the same.
        """
        documented_names = [parameter.name for parameter in parameters(default) or ()]
        member_function: Function
        if documented_names == ["device_index", "device"]:
            member_function = self._with_device_parameters(function)
        elif documented_names == ["stream"]:
            # A `StreamContext` accepts `None`. torch's modules have this class, and so do
            # modules that are modelled on them.
            if self._vendor_attribute("StreamContext") and accepts(function, default):
                return function
            member_function = _accepting_no_stream(function)
        elif not documented_names or accepts(function, default):
            return function
        else:
            # The only other members are `manual_seed` and `manual_seed_all`.
            member_function = _with_seed_parameter(function)
        set_name_in_errors(member_function, default.__name__)
        return member_function

    def _with_device_parameters(self, function: Function) -> Function:
        """Return `function(device)` as `member(device_index=None, device=None)`.

        If the member is called without a device, a function that requires a device gets
        the current device, and any other function uses the vendor's default. A function
        without a device parameter runs with the device selected.
        """
        takes_device = True  # assumed if the parameters are unknown
        requires_device = False
        all_parameters = parameters(function)
        if all_parameters is not None:
            positional = [p for p in all_parameters if p.kind not in _KEYWORD_KINDS]
            takes_device = bool(positional)
            if positional:
                requires_device = positional[0].default is inspect.Parameter.empty

        def member(device_index: Device = None, device: Device = None) -> Any:
            if device is not None:
                device_index = self._merge_device_arguments(device_index, device)
            if device_index is None:
                if not requires_device:
                    return function()
                # The vendor's function, because a subclass may change `current_device`.
                return function(int(self._bound_functions["current_device"]()))
            index = self._checked_index(device_index)
            if takes_device:
                return function(index)
            with self.device_guard(index):
                return function()

        return member

    def _try_at_first_call(
        self, name: str, functions: list[Function], default: Function
    ) -> Function:
        """Return a function that, at its first call, tries `functions` in order and
        then `default`.

        torch's functions raise `RuntimeError` if they do not support the device. A
        vendor's function is skipped only if it is unfinished (`_is_unfinished`),
        because a device that fails raises `RuntimeError` too.
        """

        @wraps(default)
        def first_call(*args: Any, **kwargs: Any) -> Any:
            candidates = [*functions, default]
            if name in STREAM_MEMBERS and not self._has_streams:
                candidates = [default]
            failures: list[RuntimeError] = []
            for function in candidates:
                member_function = self._as_member(function, default)
                try:
                    result = member_function(*args, **kwargs)
                except RuntimeError as error:
                    is_from_vendor = function == self._vendor_attribute(name)
                    if is_from_vendor and not _is_unfinished(error):
                        raise
                    failures.append(error)
                    continue
                self._keep_working_function(
                    name, default.__name__, member_function, failures
                )
                return result
            raise _most_informative_error(name, failures)

        return first_call

    def _keep_working_function(
        self, name: str, member: str, function: Function, failures: list[RuntimeError]
    ) -> None:
        """Bind the function that worked, and record the error of the function that
        failed first.
        """
        if _needs_torch_allocator(name) and not self.is_initialized():
            return  # Before the allocator starts, such a function returns 0 in any case.
        self._set_member(member, function)
        if failures:
            self.refused[name] = str(failures[0])

    def _find_stream_and_event_classes(self) -> tuple[Any, Any]:
        """Return the stream class and the event class. Each is `None` if it does not exist."""
        stream_class = self._vendor_attribute("Stream")
        event_class = self._vendor_attribute("Event")
        if not inspect.isclass(event_class):
            event_class = None
        if inspect.isclass(stream_class):
            return stream_class, event_class
        # torch's classes support torch's accelerator. The member `stream` needs a stream
        # class that is a context manager, which it is not in an older torch.
        is_torch_stream_usable = hasattr(self._torch.Stream, "__enter__")
        if self._torch_accelerator is None or not is_torch_stream_usable:
            return None, event_class
        return self._torch.Stream, event_class or self._torch.Event


def _accepting_no_stream(function: Function) -> Function:
    """Return `function` as the member `stream`, which also accepts `None`."""

    def select_stream(stream: Any) -> Any:
        if stream is None:
            return nullcontext()
        return function(stream)

    return select_stream


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


def _most_informative_error(name: str, failures: list[RuntimeError]) -> RuntimeError:
    """Return the error to raise if every function failed. The last error is the
    default's.

    If the device failed, torch's error is more informative than "not supported", the
    error of the default.
    """
    *errors_of_functions, error_of_default = failures
    is_not_implemented = isinstance(error_of_default, NotImplementedError)
    if not is_not_implemented or _needs_torch_allocator(name):
        return error_of_default
    if errors_of_functions:
        return errors_of_functions[-1]
    return error_of_default


def _method_for_super_calls(name: str) -> Function:
    """Return a method that calls the bound function, for an override's `super()` call,
    even in compiled code.
    """

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._bound_functions[name](*args, **kwargs)

    return member


for _name in ("_select", *(FORWARDED.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _method_for_super_calls(_name))


class GenericAccelerator(TorchAccelerator):
    """A `TorchAccelerator` for the device that `torch.accelerator` reports when the
    object is constructed.

    Its name is "generic", and `device_name()` returns the device type in torch. Raises
    `BackendUnavailableError` if torch reports no accelerator.
    """

    def device_count(self) -> int:
        """Return the number of devices that torch sees. A device whose count is 0 before
        it starts is started first.
        """
        if not super().device_count() and self._uses_private_use1_slot:
            self._try_to_create_tensor()  # This starts the device.
        return int(super().device_count())
