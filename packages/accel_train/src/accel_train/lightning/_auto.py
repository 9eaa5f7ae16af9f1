"""Make Lightning's `auto` choose accel_core's accelerator where Lightning would use the CPU.

Lightning's connector checks its own accelerators in turn, and uses the name `cpu` if none is available. It
looks this name up in a registry of accelerators. It looks up strategies for several processes in a registry
of strategies. Both registries accept replacements (`override=True`). accel-train's entries create Lightning's
own objects, unless the program uses `auto` and accel_core chose an accelerator. No function of Lightning is
replaced.

`subpackage` is `"pytorch"` for Lightning's `Trainer`, and `"fabric"` for its `Fabric`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.errors import IntegrationError, IntegrationMissingError
from accel_train.lightning import _classes
from accel_train.lightning._kit import launched_ranks_per_node, lightning_module
from accel_train.lightning._members import (
    AcceleratorMembers,
    ProcessesMembers,
    SingleDeviceMembers,
)
from accel_train.private_names import lightning_arguments

if TYPE_CHECKING:
    import torch

__all__ = ["replace_entries_for_auto"]

_CPU = "cpu"
#: Values of `precision` that Lightning changes to bf16 for an accelerator that is registered as `cpu`.
_FP16 = ("16-mixed", "16", 16)


def replace_entries_for_auto(subpackage: str) -> None:
    """Replace the entries that `auto` uses in Lightning's registries. A second call changes nothing."""
    accelerators, strategies = _classes.registries(subpackage)
    cpu_accelerator = accelerators[_CPU]["accelerator"]
    is_registered = issubclass(cpu_accelerator, _AcceleratorEntry)
    if is_registered:
        return
    ddp_strategy = lightning_module(subpackage, "strategies").DDPStrategy
    ddp_names = []
    for name, entry in strategies.items():
        if entry["strategy"] is ddp_strategy:
            ddp_names.append(name)
    accelerator_entry = _derive_entry_class(
        _AcceleratorEntry, cpu_accelerator, subpackage
    )
    _replace_entry(accelerators, _CPU, accelerator_entry)
    for name in ddp_names:
        strategy_entry = _derive_entry_class(_StrategyEntry, ddp_strategy, subpackage)
        _replace_entry(strategies, name, strategy_entry)


def _derive_entry_class(mixin: Any, lightning_class: Any, subpackage: str) -> Any:
    """Return a class for a registry entry, derived from `mixin` and `lightning_class`.

    Calling the class returns an object of `lightning_class`, or of accel-train's class.
    """
    return type(
        lightning_class.__name__,
        (mixin, lightning_class),
        {"subpackage": subpackage, "lightning_class": lightning_class},
    )


def _replace_entry(registry: Any, name: str, new_class: Any) -> None:
    """Replace the class of the registry's entry `name`, and keep the entry's description and options."""
    entry = registry[name]
    registry.register(
        name,
        new_class,
        description=entry["description"],
        override=True,
        **entry["init_params"],
    )


class _AcceleratorEntry:
    """Registry entry for the name `cpu`. For `auto`, the entry creates accel-train's accelerator.

    If the program did not request `auto`, or if `auto` selects the CPU, the entry creates Lightning's
    accelerator for the CPU.
    """

    subpackage: ClassVar[str]
    lightning_class: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        """Return accel-train's accelerator if `auto` selects it, else Lightning's accelerator for the CPU."""
        arguments = lightning_arguments()
        if _is_auto_requested(cls.subpackage, arguments):
            accelerator = _accelerator_for_auto(cls.subpackage, arguments)
            if accelerator is not None:
                return accelerator
        return cls.lightning_class(**options)


class _StrategyEntry:
    """Registry entry for DDP, which creates accel-train's strategy for accel-train's accelerator.

    For any other accelerator, the entry creates Lightning's strategy.
    """

    subpackage: ClassVar[str]
    lightning_class: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        """Return a strategy for the connector's accelerator.

        If the accelerator is accel-train's, the strategy is accel-train's, for one device or for several.
        """
        connector = lightning_arguments().get("self")
        accelerator = getattr(connector, "accelerator", None)
        if not isinstance(accelerator, AcceleratorMembers):
            return cls.lightning_class(**options)
        strategies = _classes.derived_classes(cls.subpackage)
        if isinstance(accelerator, _AutoMembers) and accelerator.is_single:
            return strategies.SingleDevice()
        return strategies.DataParallel(**options)


class _AutoMembers:
    """The members that accel-train's accelerator overrides if `auto` selected the accelerator."""

    num_nodes: ClassVar[int]
    #: Whether the program also requested `auto` as the strategy, and only one host trains.
    may_be_single: ClassVar[bool]
    #: Whether one process with one device trains.
    is_single: ClassVar[bool] = False

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of ranks that a launcher started on this host.

        If no launcher started this process, the result is the number of devices.
        """
        count: int = super().auto_device_count()  # type: ignore[misc]
        launched_count = launched_ranks_per_node(cls.num_nodes)
        if launched_count > 0:
            return launched_count
        return count

    @classmethod
    def get_parallel_devices(cls, devices: Any) -> list[torch.device]:
        """Return the `torch.device` of each process. If only one process trains, return its device twice.

        For one device, Lightning would create its own strategy for the CPU. For two devices, Lightning finds
        accel-train's strategy in the registry, and that strategy uses the first device.
        """
        parallel_devices: list[torch.device] = super().get_parallel_devices(devices)  # type: ignore[misc]
        cls.is_single = cls.may_be_single and len(parallel_devices) == 1
        if cls.is_single:
            # For one device, Lightning would not request DDP, and therefore not use the entry for DDP.
            return [*parallel_devices, *parallel_devices]
        return parallel_devices


def _is_auto_requested(subpackage: str, arguments: dict[str, Any]) -> bool:
    """Return whether the program requests the accelerator `auto` with a strategy that accel-train has.

    Such a strategy is `auto`, accel-train's own, or one whose registry entry is accel-train's (DDP).
    `arguments` are the arguments of Lightning's connector. The result is False for float16, because Lightning
    would change it to bfloat16.
    """
    if arguments.get("accelerator") != "auto" or arguments.get("precision") in _FP16:
        return False
    strategy = arguments.get("strategy")
    if strategy == "auto":
        return True
    _, strategies = _classes.registries(subpackage)
    strategy_class = type(strategy)
    if isinstance(strategy, str) and strategy.lower() in strategies:
        strategy_class = strategies[strategy.lower()]["strategy"]
    classes_of_accel_train = (_StrategyEntry, SingleDeviceMembers, ProcessesMembers)
    return issubclass(strategy_class, classes_of_accel_train)


def _accelerator_for_auto(subpackage: str, arguments: dict[str, Any]) -> Any:
    """Return accel-train's Lightning accelerator for the arguments of Lightning's connector.

    Returns `None` if accel_core chose the CPU, or if this release of Lightning is not supported.
    """
    try:
        accelerator_class = _classes.accelerator_class(subpackage, None)
    except (IntegrationError, IntegrationMissingError):
        return None
    if accelerator_class.core_accelerator().device().type == _CPU:
        return None
    num_nodes = arguments["num_nodes"]
    is_strategy_auto = arguments["strategy"] == "auto"
    auto_class = type(
        accelerator_class.__name__,
        (_AutoMembers, accelerator_class),
        {
            "num_nodes": num_nodes,
            "may_be_single": is_strategy_auto and num_nodes == 1,
        },
    )
    return auto_class()
