"""Putting our accelerator where DeepSpeed keeps its own, at the moments when that can be done."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import MethodType, ModuleType
from typing import Any

from accel_core.accelerators.interface import Accelerator
from accel_core.current import get_accelerator
from accel_core.errors import IntegrationError
from accel_core.integrations.deepspeed._hook import ImportHook
from accel_core.integrations.deepspeed._view import launcher_view

__all__ = ["kept_by_deepspeed", "missing_members", "prepare", "replace"]

_HOME = "deepspeed.accelerator.real_accelerator"
#: In a source checkout DeepSpeed's build imports the same files as a package `accelerator` of their own.
_HOMES = (_HOME, "accelerator.real_accelerator")
#: What starts other processes, and nothing else.
_LAUNCHERS = ("deepspeed.launcher.runner", "deepspeed.launcher.launch")
_NPU_BUILDERS = "deepspeed.ops.op_builder.npu"
_NPU = "torch_npu"
_MISSING = object()
#: Abstract up to DeepSpeed 0.17 at least, and called only where torch is older than 2.4.
_NEVER_CALLED = frozenset(("amp",))


def prepare() -> None:
    """Have our accelerator put in place when DeepSpeed is imported; until then nothing is chosen."""
    _hook.install()


# --- while DeepSpeed is imported -----------------------------------------------------------------------


@contextlib.contextmanager
def _placing(module: ModuleType) -> Iterator[None]:
    """Right after the module is executed, and before the rest of DeepSpeed asks it what was chosen."""
    yield
    if _is_home(module):
        _put(module, get_accelerator())


def _is_home(module: ModuleType) -> bool:
    """Whether this is DeepSpeed's module: others may have a package `accelerator` too."""
    return hasattr(module, "ds_accelerator") and hasattr(module, "set_accelerator")


def _put(module: Any, accelerator: Accelerator) -> None:
    for abstract in _abstract_classes():
        # DeepSpeed wants an instance of its class. Ours can be none at import time, and becomes one here.
        abstract.register(Accelerator)
    # `is_current_accelerator_supported()` looks into this list of names.
    known = getattr(module, "SUPPORTED_ACCELERATOR_LIST", None)
    if isinstance(known, list) and accelerator.device_name() not in known:
        known.append(accelerator.device_name())
    module.set_accelerator(accelerator)


def _abstract_classes() -> list[Any]:
    homes = (f"{name.rpartition('.')[0]}.abstract_accelerator" for name in _HOMES)
    return [base for home in homes if (base := _attribute(home, "DeepSpeedAccelerator")) is not None]


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def missing_members(accelerator: Accelerator) -> tuple[str, ...]:
    """What DeepSpeed's abstract class asks for and `accelerator` has not; empty before it is imported."""
    names = {name for abstract in _abstract_classes() for name in abstract.__abstractmethods__}
    return tuple(sorted(n for n in names - _NEVER_CALLED if not hasattr(type(accelerator), n)))


def _placing_in_launcher() -> None:
    """The launcher's process starts others and computes nothing: it is given the launcher's view."""
    importlib.import_module("deepspeed.accelerator")  # is there already when Python loads the launcher
    module = sys.modules[_HOME]
    _put(module, launcher_view(get_accelerator()))


@contextlib.contextmanager
def _without_npu(_: ModuleType) -> Iterator[None]:
    """Keep DeepSpeed's builders for npu, which it always imports, from importing `torch_npu`.

    They do without it where it is not installed. Where it is, importing it beside another vendor raises,
    or takes torch's only slot for devices from outside.
    """
    if _NPU in sys.modules or get_accelerator().device_name() == "npu":
        yield
        return
    sys.modules[_NPU] = None  # type: ignore[assignment]  # how Python notes "cannot be imported"
    try:
        yield
    finally:
        sys.modules.pop(_NPU, None)


_hook = ImportHook(
    around={**dict.fromkeys(_HOMES, _placing), _NPU_BUILDERS: _without_npu},
    before=dict.fromkeys(_LAUNCHERS, _placing_in_launcher),
)


# --- after DeepSpeed was imported ----------------------------------------------------------------------


def kept_by_deepspeed() -> Any:
    """The accelerator that DeepSpeed has chosen in this process; `None` before it has."""
    return _attribute(_HOME, "ds_accelerator")


def replace(accelerator: Accelerator, *, force: bool) -> None:
    """Give an imported DeepSpeed `accelerator` instead of its own, and what was derived from that.

    Raises `IntegrationError` where its own is for another device, unless `force` is set.
    """
    old = kept_by_deepspeed()
    if old is None or (isinstance(old, Accelerator) and old.__dict__ is accelerator.__dict__):
        return
    if old.device_name() != accelerator.device_name() and not force:
        raise IntegrationError(
            f"DeepSpeed was imported before and has chosen {_described(old)}, accel-core has chosen "
            f"{accelerator!r}. DeepSpeed's modules, and objects made since, hold what they got from the "
            "first. Call activate() before `import deepspeed`; or activate(force=True) where no engine, "
            "tensor or process group was made yet; or set DS_ACCELERATOR so that both choose the same."
        )
    builders = _builders()
    _put(sys.modules[_HOME], accelerator)
    for module in _deepspeed_modules():
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, accelerator)
            elif isinstance(value, MethodType) and value.__self__ is old:
                setattr(module, name, getattr(accelerator, value.__name__))
            elif value is builders.get(name, _MISSING):
                setattr(module, name, accelerator.get_op_builder(name))
    _ask_ops_again()


def _described(old: Any) -> str:
    return f"{getattr(old, '_name', None) or old.device_name()} ({type(old).__module__}.{type(old).__name__})"


def _deepspeed_modules() -> list[ModuleType]:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "deepspeed"]
    return [module for module in modules if isinstance(module, ModuleType) and module.__name__ != _HOME]


def _builders() -> dict[str, Any]:
    """The builder classes that `deepspeed.ops.op_builder` took from its accelerator when imported."""
    package = sys.modules.get("deepspeed.ops.op_builder")
    held = vars(package) if package else {}
    # Those two are base classes, the same on every device.
    bases = ("OpBuilder", "CUDAOpBuilder")
    return {name: value for name, value in held.items() if name.endswith("Builder") and name not in bases}


def _ask_ops_again() -> None:
    """Which operators are compatible was asked of the old accelerator, where it was asked."""
    everything = sys.modules.get("deepspeed.ops.op_builder.all_ops")
    if everything is None:
        return
    operators = importlib.reload(everything).ALL_OPS
    answers = vars(sys.modules["deepspeed.ops"]).get("__compatible_ops__")
    if isinstance(answers, dict):  # one object, in several modules
        answers.update({name: bool(builder.is_compatible()) for name, builder in operators.items()})
