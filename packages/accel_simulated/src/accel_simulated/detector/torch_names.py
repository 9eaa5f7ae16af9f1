"""Record calls of `torch.cuda` and its like, `.cuda()`, and arguments that name a vendor.

A wrapper replaces a function everywhere in the module's tree, with its name and signature, so that it can be
found, pickled and compared by identity as before. Of a class only the method that makes an object is wrapped.
torch's own modules keep the functions that they imported earlier, so they have no overhead.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from accel_simulated import imports
from accel_simulated.detector import blame
from accel_simulated.detector.log import NOT_RECORDED, Log
from accel_simulated.detector.names import Names

__all__ = ["first_line", "is_question", "watch"]

_Chooser = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[str, str] | None"]
_frame = sys._getframe
_FUNCTIONS = (FunctionType, functools._lru_cache_wrapper)


def watch(log: Log, foreign: Mapping[str, Names]) -> None:
    """Wrap the functions to watch: those that exist after `import torch`, and others when they are
    imported.
    """
    import torch

    for kind in foreign:
        module = f"torch.{kind}"
        if module in sys.modules:
            _watch_modules(log, kind, module)
            _watch_lazy_start(log, kind, sys.modules[module])
    if "mps" in foreign:  # where the question is asked
        _watch_modules(log, "mps", "torch.backends.mps")
    _watch_methods(log, foreign)
    _watch_absent(log, foreign, torch)
    watcher = _Arguments(log, foreign)
    watcher.method(
        torch.amp.grad_scaler.GradScaler,
        "precision",
        "GradScaler({})",
        1,
        "device",
        "cuda",
    )
    _when_imported("torch.utils.data.dataloader", watcher.loaders)
    _when_imported("torch.distributed.distributed_c10d", watcher.groups)
    _when_imported("torch.distributed.device_mesh", watcher.meshes)


def is_question(name: str) -> bool:
    """Return whether a function only asks what is present: `is_available`, `device_count`."""
    return (
        name.lstrip("_").startswith(("is_", "has_", "can_")) or name == "device_count"
    )


def first_line(error: BaseException | str, kind: str = "") -> str:
    """Return an error in one line: "AssertionError: Torch not compiled with CUDA enabled"."""
    kind = kind or type(error).__name__
    return f"{kind}: {next(iter(str(error).splitlines()), '')[:200]}"


def _when_imported(module: str, change: Callable[[ModuleType], None]) -> None:
    if module in sys.modules:
        change(sys.modules[module])
    else:
        imports.change(module, after=change)


def _put(module: ModuleType, old: Any, new: Any) -> None:
    """Put `new` in the place of a module's function, and of its package's where that has it already."""
    name: str = old.__name__
    for place in (module, sys.modules[module.__name__.rpartition(".")[0]]):
        if getattr(place, name, None) is old:
            setattr(place, name, new)


def _unseen(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Let `warnings` pass over a wrapper, as it does over frames of this name, and blame who called it."""
    unseen: Any = wrapper
    unseen.__code__ = unseen.__code__.replace(
        co_filename="<accel_simulated importlib._bootstrap>"
    )
    return wrapper


def _wrapped(
    log: Log, function: Callable[..., Any], kind: str, what: str, of: str
) -> Callable[..., Any]:
    """`function`, whose callers are recorded."""
    seen, raised = log.seen, log.raised

    @_unseen
    @functools.wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:
        counter = seen(_frame(1), kind, what, of)
        if counter < 0:
            return function(*arguments, **named)
        try:
            return function(*arguments, **named)
        except Exception as error:
            raised(counter, first_line(error))
            raise

    if isinstance(function, functools._lru_cache_wrapper):
        vars(watched).update(
            cache_clear=function.cache_clear, cache_info=function.cache_info
        )
    return watched


# --- the vendor's modules -------------------------------------------------------------------------------


def _watch_modules(log: Log, of: str, root: str) -> None:
    """Wrap each function and class of a module and of those below it that are loaded."""
    known: dict[int, Any] = {}
    for name in sorted(
        name for name in sys.modules if name == root or name.startswith(f"{root}.")
    ):
        module = sys.modules[name]
        for attribute, value in list(vars(module).items()):
            if (
                not str(getattr(value, "__module__", "")).startswith(root)
                or attribute == "_lazy_init"
            ):
                continue
            what = f"{name}.{attribute}"
            if isinstance(value, type):
                if id(value) not in known:
                    known[id(value)] = value
                    _watch_class(log, value, what, of)
            elif isinstance(value, _FUNCTIONS):
                if id(value) not in known:
                    kind = (
                        "ask"
                        if is_question(attribute)
                        else "precision"
                        if ".amp" in name
                        else "call"
                    )
                    known[id(value)] = _wrapped(log, value, kind, f"{what}()", of)
                setattr(module, attribute, known[id(value)])


def _watch_class(log: Log, cls: type, what: str, of: str) -> None:
    if issubclass(cls, BaseException):
        return
    kind = "precision" if ".amp" in what else "call"
    for method in ("__init__", "__new__"):
        if isinstance(function := _plain(vars(cls).get(method)), FunctionType):
            wrapped = _wrapped(log, function, kind, f"{what}()", of)
            setattr(
                cls, method, staticmethod(wrapped) if method == "__new__" else wrapped
            )
            return


def _plain(method: Any) -> Any:
    return method.__func__ if isinstance(method, staticmethod) else method


def _watch_lazy_start(log: Log, of: str, module: ModuleType) -> None:
    """Note which error a tensor on the device gives: torch calls this from C++, in the caller's own frame."""
    start = getattr(module, "_lazy_init", None)
    if not isinstance(start, FunctionType):
        return

    @_unseen
    @functools.wraps(start)
    def watched() -> Any:
        try:
            return start()
        except Exception as error:
            found, _ = blame.past_torch(_frame(1))
            if found is not None:
                log.raised(log.at(found, of), first_line(error))
            raise

    module._lazy_init = watched  # type: ignore[attr-defined]


# --- methods and attributes -----------------------------------------------------------------------------


def _watch_methods(log: Log, foreign: Mapping[str, Names]) -> None:
    import torch
    from torch.nn.utils.rnn import PackedSequence

    for of in foreign:
        for cls in (
            torch.Tensor,
            torch.nn.Module,
            torch.UntypedStorage,
            torch.TypedStorage,
            PackedSequence,
        ):
            method = getattr(cls, of, None)
            if callable(method):
                setattr(cls, of, _wrapped(log, method, "move", f".{of}()", of))
        attribute = f"is_{of}"
        getter = getattr(torch.Tensor, attribute, None)
        if getter is not None and hasattr(getter, "__get__"):
            setattr(torch.Tensor, attribute, _question(log, getter, attribute, of))


def _question(log: Log, getter: Any, attribute: str, of: str) -> property:
    seen, get = log.seen, getter.__get__

    def read(tensor: Any) -> Any:
        seen(_frame(1), "ask", f".{attribute}", of)
        return get(tensor)

    return property(read, doc=getter.__doc__)


def _watch_absent(log: Log, foreign: Mapping[str, Names], torch: Any) -> None:
    """`torch.npu`, where there is none; and torch's old types of tensors on a device."""
    missing = torch.__getattr__

    @_unseen
    @functools.wraps(missing)
    def absent(name: str) -> Any:
        asks = name not in foreign or not _reads_attribute(_frame(1))
        counter = NOT_RECORDED
        if name in foreign:
            counter = log.seen(
                _frame(1), "ask" if asks else "call", f"torch.{name}", name
            )
        try:
            return missing(name)
        except AttributeError as error:
            if not asks:
                log.raised(counter, first_line(error))
            raise

    torch.__getattr__ = absent
    for of in foreign:
        module = sys.modules.get(f"torch.{of}")
        if module is not None and not hasattr(module, "__getattr__"):
            _watch_tensor_types(log, of, module)


def _reads_attribute(frame: Any) -> bool:
    # `torch.npu` and not `hasattr(torch, "npu")`, which only asks.
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in (
        "LOAD_ATTR",
        "LOAD_METHOD",
    )


def _watch_tensor_types(log: Log, of: str, module: ModuleType) -> None:
    """`torch.cuda.FloatTensor` is no class that can be changed: see who looks it up."""
    legacy = {
        name: value
        for name, value in vars(module).items()
        if type(value).__name__ == "tensortype"
    }

    def looked_up(name: str) -> Any:
        if name not in legacy:
            raise AttributeError(
                f"module {module.__name__!r} has no attribute {name!r}"
            )
        log.seen(_frame(1), "type", f"{module.__name__}.{name}", of)
        return legacy[name]

    if legacy:
        for name in legacy:
            delattr(module, name)
        module.__getattr__ = looked_up  # type: ignore[method-assign]


# --- arguments ------------------------------------------------------------------------------------------


class _Arguments:
    """Functions of torch's that take a vendor's name which is no device string."""

    def __init__(self, log: Log, foreign: Mapping[str, Names]) -> None:
        self._log = log
        self._foreign = foreign
        self._collectives = {
            name: of for of, names in foreign.items() for name in names.collectives
        }

    def method(
        self, cls: Any, kind: str, what: str, at: int, name: str, default: Any = None
    ) -> None:
        """Record who gives this parameter of a class's another type."""
        cls.__init__ = self._watched(
            cls.__init__, kind, self._type(at, name, what, default)
        )

    def loaders(self, module: ModuleType) -> None:
        self.method(
            module.DataLoader,
            "pinning",
            "pin_memory_device={}",
            99,
            "pin_memory_device",
        )

    def meshes(self, module: Any) -> None:
        self.method(module.DeviceMesh, "device", "DeviceMesh({})", 1, "device_type")
        what = self._type(0, "device_type", "init_device_mesh({})", None)
        _put(
            module,
            module.init_device_mesh,
            self._watched(module.init_device_mesh, "device", what),
        )

    def groups(self, module: Any) -> None:
        for name, at in (("init_process_group", 0), ("new_group", 2)):
            what = self._collective(at, "backend", f"{name}({{}})")
            function = getattr(module, name)
            _put(module, function, self._watched(function, "collective", what))
        for collective, of in self._collectives.items():
            asks = getattr(module, f"is_{collective}_available", None)
            if asks is not None:
                _put(
                    module,
                    asks,
                    _wrapped(self._log, asks, "ask", f"{asks.__name__}()", of),
                )

    def _type(self, at: int, name: str, what: str, default: Any) -> _Chooser:
        def choose(
            arguments: tuple[Any, ...], named: dict[str, Any]
        ) -> tuple[str, str] | None:
            given = arguments[at] if len(arguments) > at else named.get(name, default)
            of = str(given).partition(":")[0]
            return (
                (what.format(f'"{given}"'), of)
                if given and of in self._foreign
                else None
            )

        return choose

    def _collective(self, at: int, name: str, what: str) -> _Chooser:
        def choose(
            arguments: tuple[Any, ...], named: dict[str, Any]
        ) -> tuple[str, str] | None:
            given = arguments[at] if len(arguments) > at else named.get(name)
            for part in str(given or "").lower().replace(":", ",").split(","):
                if part in self._collectives:
                    return what.format(f'"{given}"'), self._collectives[part]
            return None

        return choose

    def _watched(
        self, function: Callable[..., Any], kind: str, choose: _Chooser
    ) -> Callable[..., Any]:
        log = self._log

        @_unseen
        @functools.wraps(function)
        def watched(*arguments: Any, **named: Any) -> Any:
            found = choose(arguments, named)
            if found is None:
                return function(*arguments, **named)
            counter = log.seen(_frame(1), kind, *found)
            try:
                return function(*arguments, **named)
            except Exception as error:
                log.raised(counter, first_line(error))
                raise

        return watched
