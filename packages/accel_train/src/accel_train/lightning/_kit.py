"""Which of Lightning's packages is used, and our classes on top of it."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any

import accel_core
from accel_core import discover, is_installed
from accel_core.errors import IntegrationMissingError
from accel_core.probing import import_torch
from accel_train.launch.variables import WORLD_SIZE

__all__ = ["accelerator_class", "classes", "lightning_module", "ranks_here", "register"]

#: The same code under two names: the distribution `lightning`, and the older ones that it came from.
_PACKAGES = {
    "pytorch": ("lightning.pytorch", "pytorch_lightning"),
    "fabric": ("lightning.fabric", "lightning_fabric"),
}


def lightning_module(kind: str, name: str) -> ModuleType:
    """Lightning's module `name` (`"strategies"`) for `"pytorch"` or `"fabric"`.

    From the package that this process has imported, else from one that is installed; `lightning` first.
    Raises `IntegrationMissingError` where there is none.
    """
    packages = _PACKAGES[kind]
    loaded = [package for package in packages if package in sys.modules]
    installed = [package for package in packages if is_installed(package)]
    for package in [*loaded, *installed][:1]:
        return importlib.import_module(f"{package}.{name}")
    raise IntegrationMissingError("Lightning is not installed in this environment: pip install lightning")


def classes(kind: str) -> ModuleType:
    """Our module with the accelerator and the strategies for `"pytorch"` or `"fabric"`."""
    return importlib.import_module(f"{__package__}._{kind}")


def accelerator_class(kind: str, name: str | None) -> Any:
    """The Lightning class for a backend; raises unless the backend can be used."""
    classes(kind)  # without Lightning nothing else matters
    chosen = accel_core.get_accelerator() if name is None else accel_core.accelerator(name)
    return _class_of(kind, chosen.name if name is None else name.strip().lower())


@functools.cache
def _class_of(kind: str, name: str) -> Any:
    base = classes(kind).AccelAccelerator
    return type(f"AccelAccelerator[{name}]", (base,), {"backend_name": name, "__module__": __name__})


def unpickled(kind: str, name: str) -> Any:
    """An accelerator that was pickled: Lightning hands its own to the processes that it spawns."""
    return _class_of(kind, name)()


def ranks_here(num_nodes: int) -> int:
    """How many ranks a launcher started on this host; 0 where Lightning starts them itself."""
    if not import_torch().distributed.is_torchelastic_launched():
        return 0
    return WORLD_SIZE.read(os.environ) // num_nodes


def register(strategies: dict[str, str]) -> list[str]:
    """Put our accelerators and strategies into the registries of Lightning's `Trainer`, and of its Fabric.

    `strategies` are our classes by the names that they get.
    """
    names = sorted({candidate.name for candidate in discover() if candidate.name})
    added = set()
    for kind, of_accelerators, of_strategies in (
        ("pytorch", "AcceleratorRegistry", "StrategyRegistry"),
        ("fabric", "ACCELERATOR_REGISTRY", "STRATEGY_REGISTRY"),
    ):
        registry = getattr(lightning_module(kind, "accelerators"), of_accelerators)
        for name in names:
            if name not in registry:
                _class_of(kind, name).register_accelerators(registry)
            if registry[name]["accelerator"] is _class_of(kind, name):
                added.add(name)
        registry = getattr(lightning_module(kind, "strategies"), of_strategies)
        for name, class_name in strategies.items():
            strategy = getattr(classes(kind), class_name)
            registry.register(name, strategy, description=f"accel_core: {strategy.__doc__}", override=True)
    return sorted(added)
