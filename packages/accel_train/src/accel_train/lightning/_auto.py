"""Entries in Lightning's registries by which `auto` finds our accelerator, where it would take the CPU.

Lightning's connector asks its own accelerators in turn, and takes the name `cpu` if none is available. It
looks that name up in a registry, and those of strategies for several processes in another; both take
replacements (`override=True`). Ours make Lightning's own objects, unless the program left the choice to
Lightning and accel_core chose an accelerator. No function of Lightning's is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.errors import IntegrationError, IntegrationMissingError
from accel_train.lightning import _classes
from accel_train.lightning._kit import lightning_module, ranks_here
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
#: With these Lightning goes on in bf16 under the name `cpu`.
_FP16 = ("16-mixed", "16", 16)


def register(kind: str) -> None:
    """Register what `auto` finds for `"pytorch"` or `"fabric"`; a second call changes nothing."""
    accelerators, strategies = _classes.registries(kind)
    on_cpu = accelerators[_CPU]["accelerator"]
    if issubclass(on_cpu, _Found):
        return
    in_processes = lightning_module(kind, "strategies").DDPStrategy
    names = [
        name for name, entry in strategies.items() if entry["strategy"] is in_processes
    ]
    _replace(accelerators, _CPU, _derived(_Found, on_cpu, kind))
    for name in names:
        _replace(strategies, name, _derived(_Started, in_processes, kind))


def _derived(members: Any, theirs: Any, kind: str) -> Any:
    return type(theirs.__name__, (members, theirs), {"kind": kind, "theirs": theirs})


def _replace(registry: Any, name: str, by: Any) -> None:
    was = registry[name]
    registry.register(
        name, by, description=was["description"], override=True, **was["init_params"]
    )


class _Found:
    """Lightning's accelerator for the CPU; what is made is ours if `auto` led here."""

    kind: ClassVar[str]
    theirs: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        asked = lightning_arguments()
        found = (
            _for_auto(cls.kind, asked)
            if _is_left_to_lightning(cls.kind, asked)
            else None
        )
        return found or cls.theirs(**options)


class _Started:
    """Lightning's strategy for several processes; what is made is ours if the accelerator is."""

    kind: ClassVar[str]
    theirs: ClassVar[Any]

    def __new__(cls, **options: Any) -> Any:
        accelerator = getattr(lightning_arguments().get("self"), "accelerator", None)
        if not isinstance(accelerator, AcceleratorMembers):
            return cls.theirs(**options)
        ours = _classes.classes(cls.kind)
        is_single = isinstance(accelerator, _AutoMembers) and accelerator.is_single
        return ours.SingleDevice() if is_single else ours.DataParallel(**options)


class _AutoMembers:
    """The members of our accelerator in which one that `auto` found differs."""

    num_nodes: ClassVar[int]
    #: Whether the strategy is left to Lightning too.
    may_be_single: ClassVar[bool]
    #: Whether it is used by one process.
    is_single: ClassVar[bool] = False

    @classmethod
    def auto_device_count(cls) -> int:
        """Return how many ranks a launcher started on this host, else the number of devices."""
        count: int = super().auto_device_count()  # type: ignore[misc]
        return ranks_here(cls.num_nodes) or count

    @classmethod
    def get_parallel_devices(cls, devices: Any) -> list[torch.device]:
        """Return the device of each process; a single one twice, and then the strategy takes the first.

        For one device Lightning makes its strategy for the CPU; for two it looks in the registry.
        """
        found: list[torch.device] = super().get_parallel_devices(devices)  # type: ignore[misc]
        cls.is_single = cls.may_be_single and len(found) == 1
        return found * 2 if cls.is_single else found


def _is_left_to_lightning(kind: str, asked: dict[str, Any]) -> bool:
    """Whether `auto` is asked for, with a strategy that ours can be made of."""
    if asked.get("accelerator") != "auto" or asked.get("precision") in _FP16:
        return False
    strategy = asked.get("strategy")
    if strategy == "auto":
        return True
    _, strategies = _classes.registries(kind)
    name = strategy.lower() if isinstance(strategy, str) else ""
    made = strategies[name]["strategy"] if name in strategies else type(strategy)
    return issubclass(made, (_Started, SingleDeviceMembers, ProcessesMembers))


def _for_auto(kind: str, asked: dict[str, Any]) -> Any:
    """Return our accelerator for what was asked; `None` if it is the CPU, or this Lightning does not fit."""
    try:
        base = _classes.accelerator_class(kind, None)
    except (IntegrationError, IntegrationMissingError):
        return None
    if base.ours().device().type == _CPU:
        return None
    is_single = asked["strategy"] == "auto" and asked["num_nodes"] == 1
    own = {"num_nodes": asked["num_nodes"], "may_be_single": is_single}
    return type(base.__name__, (_AutoMembers, base), own)()
