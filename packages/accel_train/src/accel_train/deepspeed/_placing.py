"""Put our accelerator where DeepSpeed keeps its own, as soon as that is possible."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from types import MethodType, ModuleType
from typing import Any

from accel_core import Accelerator, NotImplementedBuilder, get_accelerator
from accel_core.errors import IntegrationError, RecursiveChoiceError
from accel_core.settings import Variable, parse_flag
from accel_train.deepspeed import _alone, _by_host, _lists
from accel_train.import_hook import ImportHook

__all__ = [
    "kept_by_deepspeed", "known_to_deepspeed", "missing_members", "prepare", "replace", "set_up", "settle",
]  # fmt: skip

_HOME = "deepspeed.accelerator.real_accelerator"
#: In a source checkout DeepSpeed's build imports the same files as a package `accelerator` of their own.
_HOMES = (_HOME, "accelerator.real_accelerator")
#: What starts other processes, and nothing else.
_LAUNCHERS = ("deepspeed.launcher.runner", "deepspeed.launcher.launch")
#: They ask for a compiler when they are imported: it is the default of their method `compile`.
_ENGINES = ("deepspeed.runtime.engine", "deepspeed.inference.engine")
#: Device types that accel_core knows a compiler for at once.
_INDUCTORS_OWN = ("cpu", "cuda", "xpu")
#: Modules of DeepSpeed's that work otherwise here, each with what changes it.
_SERVED = {_alone.COMM: _alone.serve, _by_host.HOME: _by_host.serve}
_BUILDERS = "deepspeed.ops.op_builder"
_NPU_BUILDERS = f"{_BUILDERS}.npu"
_NPU = "torch_npu"
#: What `ds_report` prints.
_REPORT = "deepspeed.env_report"
#: In a source checkout the files of `_BUILDERS` are a top-level package too, for DeepSpeed's build.
_BUILDERS_OF_BUILD = "op_builder"
_MISSING = object()
#: Set by `activate(vendor_defaults=False)`, so that child processes do as it does.
ACCEL_VENDOR_DEFAULTS = Variable("ACCEL_VENDOR_DEFAULTS", parse_flag, True)
_stand_in: Accelerator | None = None
#: Only an operator was asked for: what the vendor wants set for a training is left as it is.
_without_defaults = False
#: Abstract up to DeepSpeed 0.17 at least, and called only where torch is older than 2.4.
_NEVER_CALLED = frozenset(("amp",))


def prepare(*, for_training: bool = True) -> None:
    """Have our accelerator set when DeepSpeed is imported; until then none is chosen.

    Not `for_training`: the import sets nothing for the vendor, unless an activation has prepared it too.
    """
    global _without_defaults
    _without_defaults = not for_training and (
        _without_defaults or _hook not in sys.meta_path
    )
    _hook.install()


# --- while DeepSpeed is imported -----------------------------------------------------------------------


@contextlib.contextmanager
def _placing(module: ModuleType) -> Iterator[None]:
    """Right after the module is executed, and before the rest of DeepSpeed asks it what was chosen."""
    yield
    if _is_home(module):
        accelerator = _present()
        _put(module, accelerator)
        # In a process that was started, nobody calls activate().
        set_up(accelerator, defaults=not _without_defaults)


def set_up(accelerator: Accelerator, *, defaults: bool = True) -> tuple[str, ...]:
    """Set what the vendor wants set, unless `defaults` are off here or by variable; return what was changed.

    DeepSpeed can then run in one process without a launcher, even if its communication was imported before.
    The module that provides the communication backend is imported, because DeepSpeed only asks for its name.
    """
    from accel_train.launch.communication import (
        prepared,
    )  # here: who only imports DeepSpeed needs no more

    for name, serve in _SERVED.items():
        if (module := sys.modules.get(name)) is not None:
            serve(module)
    prepared(accelerator)
    vars(accelerator)["_pins"] = _native_pins
    wanted = defaults and ACCEL_VENDOR_DEFAULTS.read(os.environ)
    return accelerator.apply_vendor_defaults() if wanted else ()


def _native_pins() -> object:
    """DeepSpeed's manager of page-locked memory where `DS_PIN_MEMORY_BACKEND=native` asks for it.

    It locks memory by an operator of its own, and calls the accelerator's `register_host_memory`.
    """
    if os.environ.get("DS_PIN_MEMORY_BACKEND", "torch").strip().lower() != "native":
        return None
    try:
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory
    except ImportError:  # a release before it, in which the variable means nothing
        return None
    return get_active_native_pinned_memory()


def _present() -> Accelerator:
    """The accelerator; the CPU for as long as one is being made whose class is DeepSpeed's: see `settle`."""
    global _stand_in
    try:
        return get_accelerator()
    except RecursiveChoiceError:
        from accel_core import builtin
        from accel_core.interface.cpu import CPUAccelerator

        _stand_in = _stand_in or CPUAccelerator(builtin.CPU)
        return _stand_in


def settle(accelerator: Accelerator) -> None:
    """Put `accelerator` in place of its stand-in, used while its own class imported DeepSpeed."""
    global _stand_in
    if _stand_in is not None and _stand_in is kept_by_deepspeed():
        replace(accelerator, force=True)
        set_up(accelerator)
        _stand_in = None


def _is_home(module: ModuleType) -> bool:
    """Whether this is DeepSpeed's module: others may have a package `accelerator` too."""
    return hasattr(module, "ds_accelerator") and hasattr(module, "set_accelerator")


def _put(module: Any, accelerator: Accelerator) -> None:
    missing: Any = NotImplementedBuilder
    missing.NAME = missing.name = _lists.NOT_IMPLEMENTED
    missing.BUILD_VAR = ""  # DeepSpeed's setup.py wants one of each builder
    for abstract in _abstract_classes():
        # DeepSpeed wants an instance of its class. Ours can be none at import time, and becomes one here.
        abstract.register(Accelerator)
    # `is_current_accelerator_supported()` looks into this list of names.
    known = getattr(module, "SUPPORTED_ACCELERATOR_LIST", None)
    if isinstance(known, list) and accelerator.device_name() not in known:
        known.append(accelerator.device_name())
    # Its set_accelerator() would make a choice of this: a DeepSpeed that asks accel_core tells it there.
    module.ds_accelerator = accelerator


def _abstract_classes() -> list[Any]:
    homes = (f"{name.rpartition('.')[0]}.abstract_accelerator" for name in _HOMES)
    return [
        base
        for home in homes
        if (base := _attribute(home, "DeepSpeedAccelerator")) is not None
    ]


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def missing_members(accelerator: Accelerator) -> tuple[str, ...]:
    """List abstract members of DeepSpeed's class that `accelerator` lacks; empty before its import."""
    names = {
        name
        for abstract in _abstract_classes()
        for name in abstract.__abstractmethods__
    }
    return tuple(
        sorted(n for n in names - _NEVER_CALLED if not hasattr(type(accelerator), n))
    )


def _placing_in_launcher() -> None:
    """The launcher's process starts others and computes nothing: it is given the launcher's view."""
    from accel_train.deepspeed._view import launcher_view  # needed by launchers alone

    importlib.import_module(
        "deepspeed.accelerator"
    )  # is there already when Python loads the launcher
    module = sys.modules[_HOME]
    _put(module, launcher_view(get_accelerator()))


@contextlib.contextmanager
def _without_npu(_: ModuleType) -> Iterator[None]:
    """Keep DeepSpeed's builders for npu, which it always imports, from importing `torch_npu`.

    They do without it where it is not installed. Where it is, importing it beside another vendor raises,
    or takes torch's only slot for devices from outside.
    """
    with (
        contextlib.nullcontext() if _present().device_name() == "npu" else _absent(_NPU)
    ):
        yield


@contextlib.contextmanager
def _without_build(_: ModuleType) -> Iterator[None]:
    """Keep DeepSpeed's builders from importing the package of its build, which a checkout has beside them.

    It is their own files once more, and asks for every builder while they are half imported: some fail then.
    They do without it where it is not there.
    """
    with _absent(_BUILDERS_OF_BUILD):
        yield


@contextlib.contextmanager
def _absent(name: str) -> Iterator[None]:
    """Have the package not found, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how Python notes "cannot be imported"
    try:
        yield
    finally:
        sys.modules.pop(name, None)


@contextlib.contextmanager
def _listing(module: ModuleType) -> Iterator[None]:
    """DeepSpeed's list of operators has those of our accelerator too, wherever their builders come from."""
    yield
    _lists.complete(module, kept_by_deepspeed())


@contextlib.contextmanager
def _serving(module: ModuleType) -> Iterator[None]:
    yield
    _SERVED[module.__name__](module)


@contextlib.contextmanager
def _compiling_later(_: ModuleType) -> Iterator[None]:
    """Give DeepSpeed's engines our door to torch.compile, which asks for the compiler when it compiles.

    To find one for a device that declares none takes torch's inductor, whose import is a second.
    """
    accelerator = _present()
    if accelerator.backend.compile_backend or accelerator.device_type in _INDUCTORS_OWN:
        yield
        return
    from accel_train.compiling import DOOR

    vars(accelerator)["get_compile_backend"] = lambda: DOOR
    try:
        yield
    finally:
        del vars(accelerator)["get_compile_backend"]


@contextlib.contextmanager
def _telling(module: Any) -> Iterator[None]:
    """`ds_report` says whose accelerator it reports on."""
    yield
    report = module.debug_report

    def with_ours() -> None:
        report()
        accelerator = kept_by_deepspeed()
        if isinstance(accelerator, Accelerator):
            dots = "." * 22  # to the column of DeepSpeed's own lines
            sys.stdout.write(f"accelerator {dots} {accelerator!r}, by accel-train\n")

    module.debug_report = with_ours


_hook = ImportHook(
    around={
        **dict.fromkeys(_HOMES, _placing),
        _BUILDERS: _without_build,
        _NPU_BUILDERS: _without_npu,
        _lists.ALL_OPS: _listing,
        **dict.fromkeys(_SERVED, _serving),
        _REPORT: _telling,
        **dict.fromkeys(_ENGINES, _compiling_later),
    },
    before=dict.fromkeys(_LAUNCHERS, _placing_in_launcher),
)


# --- after DeepSpeed was imported ----------------------------------------------------------------------


def known_to_deepspeed() -> tuple[str, ...]:
    """List the devices that the imported DeepSpeed has its own classes for, and the one that we set."""
    lists = (_attribute(home, "SUPPORTED_ACCELERATOR_LIST") or () for home in _HOMES)
    return tuple(name for names in lists for name in names)


def kept_by_deepspeed() -> Any:
    """Return the accelerator that DeepSpeed has chosen in this process; `None` if it has not chosen yet."""
    return _attribute(_HOME, "ds_accelerator")


def replace(accelerator: Accelerator, *, force: bool) -> None:
    """Give an imported DeepSpeed `accelerator` instead of its own, and update what it derived from its own.

    Raises `IntegrationError` if DeepSpeed's own accelerator is for another device, unless `force` is set.
    """
    homes = [
        home
        for name in _HOMES
        if (home := sys.modules.get(name)) is not None and _is_home(home)
    ]
    chosen: list[Any] = [home.ds_accelerator for home in homes]
    olds = [
        old for old in chosen if old is not None and not _is_view_of(old, accelerator)
    ]
    for old in olds:
        if old.device_name() != accelerator.device_name() and not force:
            raise IntegrationError(
                f"DeepSpeed was imported before and has chosen {_described(old)}, accel-core has chosen "
                f"{accelerator!r}. DeepSpeed's modules, and objects made since, still use the first "
                "one. Call activate() before `import deepspeed`; or activate(force=True) if no engine, "
                "tensor or process group was made yet; or set DS_ACCELERATOR so that both choose the same."
            )
    for home in homes:
        if (
            home.ds_accelerator is None
        ):  # a DeepSpeed that asks us itself, while it is imported
            _put(home, accelerator)
    if not olds:
        return
    builders = _builders()
    for home in homes:
        _put(home, accelerator)
    for module in _modules_of_deepspeed():
        for name, value in list(vars(module).items()):
            if any(value is old for old in olds):
                setattr(module, name, accelerator)
            elif isinstance(value, MethodType) and any(
                value.__self__ is old for old in olds
            ):
                setattr(module, name, getattr(accelerator, value.__name__))
            elif value is builders.get(name, _MISSING):
                setattr(module, name, accelerator.get_op_builder(name))
    _lists.renew(accelerator)


def _is_view_of(old: Any, accelerator: Accelerator) -> bool:
    return isinstance(old, Accelerator) and old.__dict__ is accelerator.__dict__


def _described(old: Any) -> str:
    return f"{getattr(old, '_name', None) or old.device_name()} ({type(old).__module__}.{type(old).__name__})"


def _modules_of_deepspeed() -> list[ModuleType]:
    """In a checkout two packages of its build are imported beside it."""
    tops = ("deepspeed", "accelerator", _BUILDERS_OF_BUILD)
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in tops
    ]
    return [
        module
        for module in modules
        if isinstance(module, ModuleType) and module.__name__ not in _HOMES
    ]


def _builders() -> dict[str, Any]:
    """The builder classes that `deepspeed.ops.op_builder` took from its accelerator when imported."""
    package = sys.modules.get(_BUILDERS)
    held = vars(package) if package else {}
    # Those two are base classes, the same on every device.
    bases = ("OpBuilder", "CUDAOpBuilder")
    return {
        name: value
        for name, value in held.items()
        if name.endswith("Builder") and name not in bases
    }
