"""Make Lightning's `auto` choose accel_core's accelerator, where it would take the CPU.

Lightning's connector asks its own accelerators in turn, and takes the name `cpu` if none is available. It
looks that name up in a registry, and those of strategies for several processes in another; both accept
replacements (`override=True`). Our entries make Lightning's own objects, unless the program left the choice
to Lightning and accel_core chose an accelerator. No function of Lightning's is replaced.

`subpackage` is `"pytorch"` for Lightning's `Trainer`, `"fabric"` for its `Fabric`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.errors import IntegrationError, IntegrationMissingError
from accel_train.lightning import _classes
from accel_train.lightning._kit import launched_ranks, lightning_module
from accel_train.lightning._members import (
    AcceleratorMembers,
    ProcessesMembers,
    SingleDeviceMembers,
)
from accel_train.private_names import lightning_arguments

if TYPE_CHECKING:
    import torch

__all__ = ["register"]

_CPU = "cpu"
#: Values of `precision` with which Lightning, under the name `cpu`, would continue in bf16.
_FP16 = ("16-mixed", "16", 16)


def register(subpackage: str) -> None:
    """Replace the entries of Lightning's registries that `auto` uses; a second call changes nothing."""
    accelerators, strategies = _classes.registries(subpackage)
    cpu_accelerator = accelerators[_CPU]["accelerator"]
    if issubclass(cpu_accelerator, _AcceleratorEntry):
        return
    ddp_strategy = lightning_module(subpackage, "strategies").DDPStrategy
    ddp_names = [
        name for name, entry in strategies.items() if entry["strategy"] is ddp_strategy
    ]
    _replace_entry(
        accelerators, _CPU, _entry_class(_AcceleratorEntry, cpu_accelerator, subpackage)
    )
    for name in ddp_names:
        _replace_entry(
            strategies, name, _entry_class(_StrategyEntry, ddp_strategy, subpackage)
        )


def _entry_class(entry_members: Any, lightning_class: Any, subpackage: str) -> Any:
    """Return a class for a registry that makes objects of `lightning_class`, or ours."""
    return type(
        lightning_class.__name__,
        (entry_members, lightning_class),
        {"subpackage": subpackage, "lightning_class": lightning_class},
    )


def _replace_entry(registry: Any, name: str, new_class: Any) -> None:
    """Replace the class of a registry's entry; its description and options stay."""
    entry = registry[name]
    registry.register(
        name,
        new_class,
        description=entry["description"],
        override=True,
        **entry["init_params"],
    )


class _AcceleratorEntry:
    """Registry entry for the CPU: it makes our accelerator if `auto` led to it, else Lightning's."""

    subpackage: ClassVar[str]
    lightning_class: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        """Return our accelerator if the program left the choice to Lightning, else Lightning's."""
        arguments = lightning_arguments()
        if _is_left_to_lightning(cls.subpackage, arguments):
            accelerator = _accelerator_for_auto(cls.subpackage, arguments)
            if accelerator is not None:
                return accelerator
        return cls.lightning_class(**options)


class _StrategyEntry:
    """Registry entry for DDP: it makes our strategy if the accelerator is ours, else Lightning's."""

    subpackage: ClassVar[str]
    lightning_class: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        """Return our strategy, for one device or several, if the connector's accelerator is ours."""
        connector = lightning_arguments().get("self")
        accelerator = getattr(connector, "accelerator", None)
        if not isinstance(accelerator, AcceleratorMembers):
            return cls.lightning_class(**options)
        strategies = _classes.derived_classes(cls.subpackage)
        if isinstance(accelerator, _AutoMembers) and accelerator.is_single:
            return strategies.SingleDevice()
        return strategies.DataParallel(**options)


class _AutoMembers:
    """The members in which our accelerator differs if `auto` chose it."""

    num_nodes: ClassVar[int]
    #: Whether the strategy is left to Lightning too, and there is one host.
    may_be_single: ClassVar[bool]
    #: Whether one process uses one device.
    is_single: ClassVar[bool] = False

    @classmethod
    def auto_device_count(cls) -> int:
        """Return how many ranks a launcher started on this host, else the number of devices."""
        count: int = super().auto_device_count()  # type: ignore[misc]
        return launched_ranks(cls.num_nodes) or count

    @classmethod
    def get_parallel_devices(cls, devices: Any) -> list[torch.device]:
        """Return the device of each process; a single device is returned twice.

        For one device Lightning makes its strategy for the CPU; for two it looks in the registry, where it
        finds our strategy, which takes the first.
        """
        parallel_devices: list[torch.device] = super().get_parallel_devices(devices)  # type: ignore[misc]
        cls.is_single = cls.may_be_single and len(parallel_devices) == 1
        if cls.is_single:
            return parallel_devices * 2
        return parallel_devices


def _is_left_to_lightning(subpackage: str, arguments: dict[str, Any]) -> bool:
    """Return whether the program wants `auto`, with a strategy that our strategies can replace.

    `arguments`: those of Lightning's connector.
    """
    if arguments.get("accelerator") != "auto" or arguments.get("precision") in _FP16:
        return False
    strategy = arguments.get("strategy")
    if strategy == "auto":
        return True
    _, strategies = _classes.registries(subpackage)
    name = strategy.lower() if isinstance(strategy, str) else ""
    strategy_class = type(strategy)
    if name in strategies:
        strategy_class = strategies[name]["strategy"]
    return issubclass(
        strategy_class, (_StrategyEntry, SingleDeviceMembers, ProcessesMembers)
    )


def _accelerator_for_auto(subpackage: str, arguments: dict[str, Any]) -> Any:
    """Return our accelerator for the connector's arguments.

    `None` if accel_core chose the CPU, or this release of Lightning is not supported.
    """
    try:
        accelerator_class = _classes.accelerator_class(subpackage, None)
    except (IntegrationError, IntegrationMissingError):
        return None
    if accelerator_class.core_accelerator().device().type == _CPU:
        return None
    num_nodes = arguments["num_nodes"]
    auto_class = type(
        accelerator_class.__name__,
        (_AutoMembers, accelerator_class),
        {
            "num_nodes": num_nodes,
            "may_be_single": arguments["strategy"] == "auto" and num_nodes == 1,
        },
    )
    return auto_class()
