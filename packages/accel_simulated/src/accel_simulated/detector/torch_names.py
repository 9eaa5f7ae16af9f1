"""Record calls into modules such as `torch.cuda`, uses of `.cuda()` and `.is_cuda`, and missing modules.

A wrapper replaces a function everywhere in the module's tree. The wrapper has the name and signature of the
function, so it can be found, pickled and compared by identity like the original. For a class, only the method
that creates an instance is wrapped. torch's own modules keep the functions that they imported earlier, so
calls within torch have no overhead.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from accel_simulated.detector import advice, attribution
from accel_simulated.detector.log import Log
from accel_simulated.detector.names import VendorNames
from accel_simulated.detector.wrapping import (
    FUNCTION_TYPES,
    Use,
    describe_error,
    hide_from_warnings,
    is_device_check,
    wrap_to_record_calls,
)

__all__ = ["watch"]

_frame = sys._getframe


def watch(log: Log, names: Mapping[str, VendorNames]) -> None:
    """Start recording uses of these device types in torch.

    The modules, methods and attributes that belong to the device types are wrapped.
    """
    for device_type in names:
        module = sys.modules.get(f"torch.{device_type}")
        if module is not None:
            _watch_modules(log, device_type, module.__name__)
            _watch_lazy_start(log, device_type, module)
    if "mps" in names:  # programs check for mps with functions of torch.backends.mps
        _watch_modules(log, "mps", "torch.backends.mps")
    _watch_methods(log, names)
    _watch_missing_modules(log, names)
    for device_type in names:
        module = sys.modules.get(f"torch.{device_type}")
        # Tensor types are recorded by a `__getattr__`, which must not replace the module's own.
        if module is not None and not hasattr(module, "__getattr__"):
            _watch_tensor_types(log, device_type, module)


# --- the vendor's modules -------------------------------------------------------------------------------


def _watch_modules(log: Log, device_type: str, root: str) -> None:
    """Wrap the functions and classes of the module named `root` and of its loaded submodules."""
    watched_classes: set[type] = set()
    wrapper_of_function: dict[int, Any] = {}  # by the function's id
    for module, name, member in _find_members(root):
        full_name = f"{module.__name__}.{name}"
        if isinstance(member, type):
            if member not in watched_classes:
                watched_classes.add(member)
                _watch_class(log, member, full_name, device_type)
            continue
        # Several modules may contain the same function. The report uses the first name.
        if id(member) not in wrapper_of_function:
            kind = _kind_of_function(module, name)
            use = Use(kind, f"{full_name}()", device_type)
            wrapper_of_function[id(member)] = wrap_to_record_calls(log, member, use)
        setattr(module, name, wrapper_of_function[id(member)])


class _Member(NamedTuple):
    """A function or class in a module."""

    module: ModuleType
    name: str
    value: Any


def _find_members(root: str) -> Iterator[_Member]:
    """Yield the functions and classes of the module named `root` and of its loaded submodules."""
    module_names = [
        name for name in sys.modules if name == root or name.startswith(f"{root}.")
    ]
    for module_name in sorted(module_names):
        module = sys.modules[module_name]
        for name, value in list(vars(module).items()):
            # A member that the module imported from elsewhere is left out.
            is_own = str(getattr(value, "__module__", "")).startswith(root)
            is_wrappable = isinstance(value, (type, *FUNCTION_TYPES))
            # `_watch_lazy_start` wraps `_lazy_init` in another way.
            if is_own and is_wrappable and name != "_lazy_init":
                yield _Member(module, name, value)


def _kind_of_function(module: ModuleType, name: str) -> str:
    """Return the key of `advice.KINDS` that describes calls to a module's function."""
    if is_device_check(name):
        return advice.DEVICE_CHECK
    if ".amp" in module.__name__:
        return "precision"
    return "call"


def _watch_class(log: Log, cls: type, full_name: str, device_type: str) -> None:
    """Wrap the method that creates instances of a class. Exception classes are left unchanged."""
    if issubclass(cls, BaseException):
        return
    kind = "precision" if ".amp" in full_name else "call"
    use = Use(kind, f"{full_name}()", device_type)
    for method_name in ("__init__", "__new__"):
        method = vars(cls).get(method_name)
        if isinstance(method, staticmethod):
            method = method.__func__
        if isinstance(method, FunctionType):
            wrapper: Any = wrap_to_record_calls(log, method, use)
            if method_name == "__new__":
                wrapper = staticmethod(wrapper)
            setattr(cls, method_name, wrapper)
            return  # one wrapper is enough: a second one would record the instance twice


def _watch_lazy_start(log: Log, device_type: str, module: ModuleType) -> None:
    """Record errors from the function that torch's C++ code calls to start the device on first use."""
    # torch's C++ code calls this function when a program first uses the device.
    lazy_init = getattr(module, "_lazy_init", None)
    if not isinstance(lazy_init, FunctionType):
        return

    @hide_from_warnings
    @functools.wraps(lazy_init)
    def wrapper() -> Any:
        try:
            return lazy_init()
        except Exception as error:
            user_frame = attribution.find_user_call(_frame(1)).user
            if user_frame is not None:
                counter = log.find_counter_at_line(user_frame, device_type)
                log.record_error(counter, describe_error(error))
            raise

    module._lazy_init = wrapper  # type: ignore[attr-defined]


# --- methods and attributes -----------------------------------------------------------------------------


def _watch_methods(log: Log, device_types: Iterable[str]) -> None:
    """Wrap `.cuda()` on tensors, modules and storages, and `.is_cuda` on tensors."""
    import torch
    from torch.nn.utils.rnn import PackedSequence

    classes = (
        torch.Tensor,
        torch.nn.Module,
        torch.UntypedStorage,
        torch.TypedStorage,
        PackedSequence,
    )
    for device_type in device_types:
        use = Use("move", f".{device_type}()", device_type)
        for cls in classes:
            method = getattr(cls, device_type, None)
            if callable(method):
                setattr(cls, device_type, wrap_to_record_calls(log, method, use))
        name = f"is_{device_type}"
        descriptor = getattr(torch.Tensor, name, None)
        if descriptor is not None and hasattr(descriptor, "__get__"):
            setattr(
                torch.Tensor, name, _recorded_property(log, descriptor, device_type)
            )


def _recorded_property(log: Log, descriptor: Any, device_type: str) -> property:
    """Return a property that wraps `descriptor`, such as `Tensor.is_cuda`, and records each read."""
    use = Use(advice.DEVICE_CHECK, f".is_{device_type}", device_type)
    # Attribute lookups are done once here, because programs read the property often.
    record, get = log.record, descriptor.__get__

    def recorded_get(tensor: Any) -> Any:
        record(_frame(1), *use)
        return get(tensor)

    return property(recorded_get, doc=descriptor.__doc__)


def _watch_missing_modules(log: Log, device_types: Iterable[str]) -> None:
    """Record code that reads a module that torch lacks, such as `torch.npu`."""
    import torch

    original_getattr = torch.__getattr__
    module_names = frozenset(device_types)

    @hide_from_warnings
    @functools.wraps(original_getattr)
    def wrapper(name: str) -> Any:
        if name not in module_names:
            return original_getattr(name)
        caller = _frame(1)
        # `hasattr(torch, "npu")` only checks for the module; the attribute access `torch.npu` uses it.
        is_use = _is_at_attribute_access(caller)
        kind = "call" if is_use else advice.DEVICE_CHECK
        counter = log.record(caller, kind, f"torch.{name}", name)
        try:
            return original_getattr(name)
        except AttributeError as error:
            if is_use:
                log.record_error(counter, describe_error(error))
            raise

    torch.__getattr__ = wrapper  # type: ignore[method-assign]


def _is_at_attribute_access(frame: FrameType) -> bool:
    """Return whether a frame is at an attribute access: `torch.npu`, but not `hasattr(torch, "npu")`."""
    current_opcode = frame.f_code.co_code[frame.f_lasti]
    return dis.opname[current_opcode] in ("LOAD_ATTR", "LOAD_METHOD")


def _watch_tensor_types(log: Log, device_type: str, module: ModuleType) -> None:
    """Record code that reads a tensor type such as `torch.cuda.FloatTensor`.

    The types themselves cannot be modified. Instead they are removed from the module, so that reading one
    calls the module's `__getattr__`.
    """
    tensor_types = {
        name: member
        for name, member in vars(module).items()
        if type(member).__name__ == "tensortype"
    }

    def module_getattr(name: str) -> Any:
        if name not in tensor_types:
            raise AttributeError(
                f"module {module.__name__!r} has no attribute {name!r}"
            )
        log.record(_frame(1), "type", f"{module.__name__}.{name}", device_type)
        return tensor_types[name]

    if tensor_types:
        for name in tensor_types:
            delattr(module, name)
        module.__getattr__ = module_getattr  # type: ignore[method-assign]
