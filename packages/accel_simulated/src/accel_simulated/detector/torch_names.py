"""Record calls of modules such as `torch.cuda`, of `.cuda()` and `.is_cuda`, and lookups of absent modules.

A wrapper replaces a function everywhere in the module's tree. The wrapper has the function's name and
signature, so that it can be found, pickled and compared by identity like the function. Of a class, only the
method that creates an instance is wrapped. torch's modules keep the functions that they imported earlier, so
calls within torch have no overhead.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, FunctionType, ModuleType
from typing import Any

from accel_simulated.detector import attribution
from accel_simulated.detector.log import NOT_RECORDED, Log
from accel_simulated.detector.names import VendorNames
from accel_simulated.detector.wrapping import (
    FUNCTION_TYPES,
    Use,
    first_line,
    hide_frame,
    is_question,
    recorded,
)

__all__ = ["watch"]

_frame = sys._getframe


def watch(log: Log, names: Mapping[str, VendorNames]) -> None:
    """Wrap these device types' modules, methods and attributes that `import torch` has loaded."""
    for device_type in names:
        module = sys.modules.get(f"torch.{device_type}")
        if module is not None:
            _watch_modules(log, device_type, module.__name__)
            _watch_lazy_start(log, device_type, module)
    if "mps" in names:  # programs check for mps with functions of torch.backends.mps
        _watch_modules(log, "mps", "torch.backends.mps")
    _watch_methods(log, names)
    _watch_absent_modules(log, names)
    for device_type in names:
        module = sys.modules.get(f"torch.{device_type}")
        if module is not None and not hasattr(module, "__getattr__"):
            _watch_tensor_types(log, device_type, module)


# --- the vendor's modules -------------------------------------------------------------------------------


def _watch_modules(log: Log, device_type: str, root: str) -> None:
    """Wrap each function and class of a module and of its loaded submodules."""
    wrapped: dict[int, Any] = {}
    for module, name, member in _members(root):
        what = f"{module.__name__}.{name}"
        if id(member) in wrapped:
            if not isinstance(member, type):
                setattr(module, name, wrapped[id(member)])
        elif isinstance(member, type):
            wrapped[id(member)] = member
            _watch_class(log, member, what, device_type)
        else:
            use = Use(_kind_of_function(module, name), f"{what}()", device_type)
            wrapped[id(member)] = recorded(log, member, use)
            setattr(module, name, wrapped[id(member)])


def _members(root: str) -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield the functions and classes in a module's tree, each with its module and its name there."""
    modules = [
        name for name in sys.modules if name == root or name.startswith(f"{root}.")
    ]
    for module in map(sys.modules.__getitem__, sorted(modules)):
        for name, member in list(vars(module).items()):
            is_own = str(getattr(member, "__module__", "")).startswith(root)
            is_wrappable = isinstance(member, (type, *FUNCTION_TYPES))
            if is_own and is_wrappable and name != "_lazy_init":
                yield module, name, member


def _kind_of_function(module: ModuleType, name: str) -> str:
    """Return the kind, a key of `advice.KINDS`, of a call of a module's function."""
    if is_question(name):
        return "ask"
    return "precision" if ".amp" in module.__name__ else "call"


def _watch_class(log: Log, cls: type, what: str, device_type: str) -> None:
    """Wrap the method of a class that creates an instance; its errors are not recorded."""
    if issubclass(cls, BaseException):
        return
    use = Use("precision" if ".amp" in what else "call", f"{what}()", device_type)
    for name in ("__init__", "__new__"):
        method = vars(cls).get(name)
        if isinstance(method, staticmethod):
            method = method.__func__
        if isinstance(method, FunctionType):
            wrapper: Any = recorded(log, method, use)
            setattr(cls, name, staticmethod(wrapper) if name == "__new__" else wrapper)
            return


def _watch_lazy_start(log: Log, device_type: str, module: ModuleType) -> None:
    """Record errors from the device's lazy start, which torch runs from C++ in the caller's frame."""
    start = getattr(module, "_lazy_init", None)
    if not isinstance(start, FunctionType):
        return

    @hide_frame
    @functools.wraps(start)
    def wrapper() -> Any:
        try:
            return start()
        except Exception as error:
            user, _ = attribution.user_frame_beyond_torch(_frame(1))
            if user is not None:
                counter = log.counter_at_line(user, device_type)
                log.record_error(counter, first_line(error))
            raise

    module._lazy_init = wrapper  # type: ignore[attr-defined]


# --- methods and attributes -----------------------------------------------------------------------------


def _watch_methods(log: Log, device_types: Iterable[str]) -> None:
    """Wrap `.cuda()` of tensors, modules and storages, and `.is_cuda` of tensors."""
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
                setattr(cls, device_type, recorded(log, method, use))
        name = f"is_{device_type}"
        descriptor = getattr(torch.Tensor, name, None)
        if descriptor is not None and hasattr(descriptor, "__get__"):
            setattr(
                torch.Tensor, name, _recorded_property(log, descriptor, device_type)
            )


def _recorded_property(log: Log, descriptor: Any, device_type: str) -> property:
    """Return a property like `Tensor.is_cuda` that records the code that reads it."""
    record, get = log.record, descriptor.__get__
    use = Use("ask", f".is_{device_type}", device_type)

    def read(tensor: Any) -> Any:
        record(_frame(1), *use)
        return get(tensor)

    return property(read, doc=descriptor.__doc__)


def _watch_absent_modules(log: Log, device_types: Iterable[str]) -> None:
    """Record code that looks up a module that torch lacks, such as `torch.npu`."""
    import torch

    missing = torch.__getattr__
    types = frozenset(device_types)

    @hide_frame
    @functools.wraps(missing)
    def wrapper(name: str) -> Any:
        if name not in types:
            return missing(name)
        is_read = _reads_attribute(_frame(1))
        kind = "call" if is_read else "ask"
        counter = log.record(_frame(1), kind, f"torch.{name}", name)
        try:
            return missing(name)
        except AttributeError as error:
            log.record_error(counter if is_read else NOT_RECORDED, first_line(error))
            raise

    torch.__getattr__ = wrapper  # type: ignore[method-assign]


def _reads_attribute(frame: FrameType) -> bool:
    """Return whether a frame reads an attribute, as in `torch.npu` but not in `hasattr(torch, "npu")`."""
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction in ("LOAD_ATTR", "LOAD_METHOD")


def _watch_tensor_types(log: Log, device_type: str, module: ModuleType) -> None:
    """Record lookups of types such as `torch.cuda.FloatTensor`, whose classes cannot be modified."""
    tensor_types = {
        name: member
        for name, member in vars(module).items()
        if type(member).__name__ == "tensortype"
    }

    def look_up(name: str) -> Any:
        if name not in tensor_types:
            raise AttributeError(
                f"module {module.__name__!r} has no attribute {name!r}"
            )
        log.record(_frame(1), "type", f"{module.__name__}.{name}", device_type)
        return tensor_types[name]

    if tensor_types:
        for name in tensor_types:
            delattr(module, name)
        module.__getattr__ = look_up  # type: ignore[method-assign]
