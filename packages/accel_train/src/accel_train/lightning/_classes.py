"""Our accelerator and strategies, derived from Lightning's classes for its `Trainer` or its `Fabric`."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import accel_core
from accel_core import discover
from accel_core.errors import IntegrationError
from accel_train.lightning import _members
from accel_train.lightning._kit import lightning_module, release
from accel_train.private_names import SEEN

__all__ = ["accelerator_class", "classes", "register", "registries"]

#: Lightning's names of the members that its two packages call differently.
_NAMES = {
    "pytorch": _members.Names(
        "precision_plugin",
        "set_world_ranks",
        "reduce",
        "determine_ddp_device_ids",
        "kwargs",
    ),
    "fabric": _members.Names(
        "precision",
        "_set_world_ranks",
        "all_reduce",
        "_determine_ddp_device_ids",
        "_fsdp_kwargs",
    ),
}
_REGISTRIES = {
    "pytorch": ("AcceleratorRegistry", "StrategyRegistry"),
    "fabric": ("ACCELERATOR_REGISTRY", "STRATEGY_REGISTRY"),
}


@functools.cache
def classes(kind: str) -> Any:
    """Return the accelerator and the strategies for `"pytorch"` or `"fabric"`, by name. Imports Lightning.

    Raises `IntegrationMissingError` if Lightning is missing or too old, and `IntegrationError` for a release
    that lacks the base classes of ours.
    """
    try:
        return SimpleNamespace(**{each.__name__: each for each in _made(kind)})
    except AttributeError as error:
        distribution, version = release(kind)
        raise IntegrationError(
            f"{distribution} {version} lacks what accel-train needs ({error}): this release is "
            f"not supported. pip install {distribution}=={SEEN['lightning']}"
        ) from error


def _made(kind: str) -> list[Any]:
    strategies: Any = lightning_module(kind, "strategies")
    names = _NAMES[kind]

    def made(name: str, members: Any, theirs: Any, **own: Any) -> Any:
        # pickle finds the class by these two names: below, and in __getattr__.
        place = {
            "__module__": __name__,
            "__qualname__": f"{kind}.{name}",
            "__doc__": members.__doc__,
        }
        return type(name, (members, theirs), {**place, **own})

    def strategy(name: str, members: Any, theirs: Any, sharded: Any = None) -> Any:
        precision = _members.for_our_device(getattr(theirs, names.precision), sharded)
        own: dict[str, Any] = {names.precision: precision}
        if issubclass(members, _members.ProcessesMembers):
            own |= {
                "names": names,
                names.reduce: members.averaged,
                names.device_ids: members.device_ids,
            }
        return made(name, members, theirs, **own)

    def reduce(accelerator: Any) -> tuple[Any, tuple[str, str]]:
        return unpickled, (kind, accelerator.backend_name)

    base = lightning_module(kind, "accelerators").Accelerator
    precision = lightning_module(kind, "plugins.precision").FSDPPrecision
    sharded = made("ShardedPrecision", _members.ShardedPrecisionMembers, precision)
    return [
        sharded,
        made("AccelAccelerator", _members.AcceleratorMembers, base, __reduce__=reduce),
        strategy(
            "SingleDevice",
            _members.SingleDeviceMembers,
            strategies.SingleDeviceStrategy,
        ),
        strategy("DataParallel", _members.ProcessesMembers, strategies.DDPStrategy),
        strategy(
            "FullySharded",
            _members.FullyShardedMembers,
            strategies.FSDPStrategy,
            sharded,
        ),
        strategy(
            "ModelParallel", _members.ProcessesMembers, strategies.ModelParallelStrategy
        ),
    ]


def accelerator_class(kind: str, name: str | None) -> Any:
    """Return the Lightning class for a backend; raises unless the backend can be used."""
    classes(kind)  # without Lightning nothing else matters
    chosen = (
        accel_core.get_accelerator() if name is None else accel_core.accelerator(name)
    )
    return _class_of(kind, chosen.name if name is None else name.strip().lower())


@functools.cache
def _class_of(kind: str, name: str) -> Any:
    base = classes(kind).AccelAccelerator
    return type(
        f"AccelAccelerator[{name}]",
        (base,),
        {"backend_name": name, "__module__": __name__},
    )


def unpickled(kind: str, name: str) -> Any:
    """Return the accelerator when it is unpickled: Lightning sends it to the processes that it spawns."""
    return _class_of(kind, name)()


def registries(kind: str) -> tuple[Any, Any]:
    """Return Lightning's registries of accelerators and of strategies, for its `Trainer` or its `Fabric`."""
    names = _REGISTRIES[kind]
    modules = (lightning_module(kind, name) for name in ("accelerators", "strategies"))
    accelerators, strategies = map(getattr, modules, names)
    return accelerators, strategies


def register(strategies: dict[str, str]) -> list[str]:
    """Add our accelerators and strategies to the registries of Lightning's `Trainer` and `Fabric`.

    `strategies` maps the name of a strategy to that of our class.
    """
    names = sorted({candidate.name for candidate in discover() if candidate.name})
    added = set()
    for kind in _NAMES:
        of_accelerators, of_strategies = registries(kind)
        for name in names:
            if name not in of_accelerators:
                _class_of(kind, name).register_accelerators(of_accelerators)
            if of_accelerators[name]["accelerator"] is _class_of(kind, name):
                added.add(name)
        for name, class_name in strategies.items():
            made = getattr(classes(kind), class_name)
            of_strategies.register(
                name, made, description=f"accel_core: {made.__doc__}", override=True
            )
    return sorted(added)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return classes(name)
