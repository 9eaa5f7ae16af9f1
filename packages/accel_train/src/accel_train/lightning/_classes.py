"""Derive accel-train's accelerator and strategies from Lightning's classes.

The argument `subpackage` is `"pytorch"` for Lightning's `Trainer`, and `"fabric"` for its `Fabric`.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import accel_core
from accel_core import discover
from accel_core.errors import IntegrationError
from accel_train.lightning import _members
from accel_train.lightning._kit import installed_release, lightning_module
from accel_train.private_names import VERIFIED_RELEASES

__all__ = ["accelerator_class", "derived_classes", "register", "registries"]

_SUBPACKAGES = ("pytorch", "fabric")
#: Names of members that differ between Lightning's `Trainer` ("pytorch") and `Fabric` ("fabric").
_MEMBER_NAMES = {
    "pytorch": _members.Names(
        precision="precision_plugin",
        set_ranks="set_world_ranks",
        reduce="reduce",
        device_ids="determine_ddp_device_ids",
        fsdp_options="kwargs",
    ),
    "fabric": _members.Names(
        precision="precision",
        set_ranks="_set_world_ranks",
        reduce="all_reduce",
        device_ids="_determine_ddp_device_ids",
        fsdp_options="_fsdp_kwargs",
    ),
}
_REGISTRY_NAMES = {
    "pytorch": ("AcceleratorRegistry", "StrategyRegistry"),
    "fabric": ("ACCELERATOR_REGISTRY", "STRATEGY_REGISTRY"),
}


@functools.cache
def derived_classes(subpackage: str) -> Any:
    """Import Lightning, and return a namespace with accel-train's accelerator and strategy classes.

    `subpackage` is `"pytorch"` or `"fabric"`. Raises `IntegrationMissingError` if Lightning is missing or too
    old. Raises `IntegrationError` if the installed Lightning lacks one of the base classes.
    """
    try:
        classes = _derive_classes(subpackage)
    except AttributeError as error:
        distribution, version = installed_release(subpackage)
        raise IntegrationError(
            f"{distribution} {version} is not supported, because it lacks names that accel-train needs "
            f"({error}). Next step: pip install {distribution}=={VERIFIED_RELEASES['lightning']}"
        ) from error
    namespace = SimpleNamespace()
    for derived_class in classes:
        setattr(namespace, derived_class.__name__, derived_class)
    return namespace


def _derive_classes(subpackage: str) -> list[Any]:
    """Return accel-train's accelerator, strategy and FSDP precision classes, derived from Lightning's."""
    strategies: Any = lightning_module(subpackage, "strategies")
    names = _MEMBER_NAMES[subpackage]

    def derive(name: str, mixin: Any, lightning_class: Any, **attributes: Any) -> Any:
        """Return a class derived from `mixin` and `lightning_class` that pickle can find by name."""
        return type(
            name,
            (mixin, lightning_class),
            {
                "__module__": __name__,
                "__qualname__": f"{subpackage}.{name}",
                "__doc__": mixin.__doc__,
                **attributes,
            },
        )

    def derive_strategy(
        name: str, mixin: Any, lightning_class: Any, sharded_precision: Any = None
    ) -> Any:
        """Return a subclass of `mixin` and `lightning_class` with a precision plugin for the accelerator."""
        precision = _members.precision_for_device(
            getattr(lightning_class, names.precision), sharded_precision
        )
        attributes: dict[str, Any] = {names.precision: precision}
        if issubclass(mixin, _members.ProcessesMembers):
            attributes["names"] = names
            attributes[names.reduce] = mixin.reduce_or_average
            attributes[names.device_ids] = mixin.device_ids
        return derive(name, mixin, lightning_class, **attributes)

    def reduce_for_pickle(accelerator: Any) -> tuple[Any, tuple[str, str]]:
        # A pickle contains a function and its arguments, which the other process calls.
        return create_unpickled, (subpackage, accelerator.backend_name)

    sharded_precision = derive(
        "ShardedPrecision",
        _members.ShardedPrecisionMembers,
        lightning_module(subpackage, "plugins.precision").FSDPPrecision,
    )
    return [
        sharded_precision,
        derive(
            "AccelAccelerator",
            _members.AcceleratorMembers,
            lightning_module(subpackage, "accelerators").Accelerator,
            __reduce__=reduce_for_pickle,
        ),
        derive_strategy(
            "SingleDevice",
            _members.SingleDeviceMembers,
            strategies.SingleDeviceStrategy,
        ),
        derive_strategy(
            "DataParallel", _members.ProcessesMembers, strategies.DDPStrategy
        ),
        derive_strategy(
            "FullySharded",
            _members.FullyShardedMembers,
            strategies.FSDPStrategy,
            sharded_precision,
        ),
        derive_strategy(
            "ModelParallel", _members.ProcessesMembers, strategies.ModelParallelStrategy
        ),
    ]


def accelerator_class(subpackage: str, name: str | None) -> Any:
    """Return accel-train's Lightning accelerator class for the backend named `name`.

    `None` means the chosen accelerator's backend. Raises the same errors as `derived_classes`. If the backend
    cannot be used, raises the same errors as `accel_core.accelerator(name)`.
    """
    # Raises an error if Lightning is missing, before an accelerator is chosen.
    derived_classes(subpackage)
    if name is None:
        return _class_for_backend(subpackage, accel_core.get_accelerator().name)
    accel_core.accelerator(name)  # Raises an error if there is no such backend.
    return _class_for_backend(subpackage, name.strip().lower())


@functools.cache
def _class_for_backend(subpackage: str, name: str) -> Any:
    """Return the subclass of accel-train's Lightning accelerator for the backend named `name`."""
    base = derived_classes(subpackage).AccelAccelerator
    return type(
        f"AccelAccelerator[{name}]",
        (base,),
        {"backend_name": name, "__module__": __name__},
    )


def create_unpickled(subpackage: str, name: str) -> Any:
    """Return a new Lightning accelerator for the backend named `name`. Pickle calls this function.

    Lightning pickles the accelerator for the processes that it spawns.
    """
    return _class_for_backend(subpackage, name)()


def registries(subpackage: str) -> tuple[Any, Any]:
    """Return two Lightning registries: the registry of accelerators and the registry of strategies."""
    accelerator_registry, strategy_registry = _REGISTRY_NAMES[subpackage]
    return (
        getattr(lightning_module(subpackage, "accelerators"), accelerator_registry),
        getattr(lightning_module(subpackage, "strategies"), strategy_registry),
    )


def register(strategies: dict[str, str]) -> list[str]:
    """Add accel-train's accelerators and strategies to the registries of Lightning's `Trainer` and `Fabric`.

    `strategies` maps the name of each strategy to the name of accel-train's class. Returns the sorted names
    of the registered accelerators. These are the names of the backends with an installed plugin, except names
    that Lightning itself uses.
    """
    backend_names = {candidate.name for candidate in discover()}
    backend_names.discard("")  # The name of a declaration that cannot be read.
    registered = set()
    for subpackage in _SUBPACKAGES:
        accelerator_registry, strategy_registry = registries(subpackage)
        for name in sorted(backend_names):
            accelerator = _class_for_backend(subpackage, name)
            if name not in accelerator_registry:
                accelerator.register_accelerators(accelerator_registry)
            # Lightning or another package may have registered the name for a class of its own.
            if accelerator_registry[name]["accelerator"] is accelerator:
                registered.add(name)
        for name, class_name in strategies.items():
            strategy = getattr(derived_classes(subpackage), class_name)
            strategy_registry.register(
                name,
                strategy,
                description=f"accel_core: {strategy.__doc__}",
                override=True,
            )
    return sorted(registered)


def __getattr__(name: str) -> Any:
    """Return the namespace `pytorch` or `fabric`, because pickle looks up classes as `pytorch.NAME`."""
    if name not in _SUBPACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return derived_classes(name)
