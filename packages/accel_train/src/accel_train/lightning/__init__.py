"""Make Lightning use the accelerator that accel_core chose, with a Lightning `Accelerator` and strategies.

    from lightning.pytorch import Trainer
    from accel_train.lightning import trainer_options

    trainer = Trainer(**trainer_options(), max_epochs=3)

Lightning recognizes its own accelerators by class. Any other accelerator gets the device `cpu`, unless the
strategy sets the device. Therefore, this module returns the accelerator and the strategy together. Importing
this module does not import Lightning. The functions here use the package `lightning`. They use
`pytorch_lightning` (or `lightning_fabric`) if the process has imported only that package, or if only that
package is installed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any, TypedDict

from accel_core.errors import IntegrationError
from accel_train.import_hook import ImportHook
from accel_train.lightning import _auto, _classes
from accel_train.lightning._kit import launched_ranks_per_node
from accel_train.lightning._members import device_indices
from accel_train.private_names import LIGHTNING_CONNECTORS

__all__ = [
    "STRATEGY",
    "STRATEGY_DDP",
    "STRATEGY_FSDP",
    "LightningOptions",
    "accelerator",
    "fabric_options",
    "prepare",
    "register",
    "trainer_options",
]

#: Names of the strategies that `register` adds: a single device, DDP, and FSDP.
STRATEGY = "accel"
STRATEGY_DDP = "accel_ddp"
STRATEGY_FSDP = "accel_fsdp"
#: The name of accel-train's class for each of Lightning's strategies.
_CLASS_OF_STRATEGY = {
    "ddp": "DataParallel",
    "fsdp": "FullySharded",
    "model_parallel": "ModelParallel",
}
_UNSUPPORTED_STRATEGY = (
    "strategy={strategy!r} is not supported on {backend}, expected auto, ddp, fsdp or model_parallel. "
    "Lightning's strategy deepspeed supports only CUDA. To use DeepSpeed on {backend}, use it without "
    "Lightning, after accel_train.deepspeed.activate()."
)


class LightningOptions(TypedDict):
    """The arguments for `Trainer(**options)` or `Fabric(**options)`."""

    #: The `Accelerator` and `Strategy` are from the Lightning package that the process uses.
    accelerator: Any
    strategy: Any
    devices: list[int] | int | str
    num_nodes: int


def accelerator(name: str | None = None) -> Any:
    """Return a Lightning `Accelerator` for the backend named `name`, or for the chosen accelerator.

    On the CPU, pass the result as `Trainer(accelerator=...)` or `Fabric(accelerator=...)`. On any other
    device, Lightning also needs a strategy for the device; `trainer_options` and `fabric_options` return
    both. Raises `IntegrationMissingError` unless Lightning 2.3 or newer is installed. Also raises the same
    errors as `accel_core.accelerator(name)`.
    """
    return _classes.accelerator_class("pytorch", name)()


def trainer_options(
    name: str | None = None,
    *,
    devices: int | str | list[int] = "auto",
    num_nodes: int = 1,
    strategy: str = "auto",
    **options: Any,
) -> LightningOptions:
    """Return the arguments `accelerator`, `strategy`, `devices` and `num_nodes` for a Lightning `Trainer`.

    `name` is the name of a backend; `None` means the chosen accelerator. `devices` is a count, a list of
    indices, text such as `"0,2"`, or -1 for all devices. If torchrun or `accel run` started the ranks,
    `devices="auto"` means the number of ranks on this host. Otherwise, it means all devices or, on the CPU,
    one process. `strategy` is `"ddp"`, `"fsdp"`, `"model_parallel"` or `"auto"`. `strategy="auto"` means DDP
    for several devices or nodes, and a single-device strategy otherwise. `options` are arguments of
    Lightning's class for the strategy: `DDPStrategy`, `FSDPStrategy` or `ModelParallelStrategy`.

    Raises `ValueError` if a device does not exist, and `IntegrationError` if `strategy` has any other value.
    Also raises the same errors as `accelerator`.
    """
    return _lightning_options("pytorch", name, devices, num_nodes, strategy, options)


def fabric_options(
    name: str | None = None,
    *,
    devices: int | str | list[int] = "auto",
    num_nodes: int = 1,
    strategy: str = "auto",
    **options: Any,
) -> LightningOptions:
    """Return the arguments `accelerator`, `strategy`, `devices` and `num_nodes` for a Lightning `Fabric`.

    The parameters and errors are those of `trainer_options`. In a script started by the command `fabric run`,
    the command's `--devices` and `--num-nodes` take precedence. Such a script must leave `devices` at
    `"auto"`, or pass the same value as the command.
    """
    is_started_by_fabric_run = bool(os.environ.get("LT_CLI_USED"))
    if not is_started_by_fabric_run:
        return _lightning_options("fabric", name, devices, num_nodes, strategy, options)
    num_nodes = int(os.environ.get("LT_NUM_NODES", num_nodes))
    fabric_arguments = _lightning_options(
        "fabric", name, devices, num_nodes, strategy, options
    )
    # Fabric replaces "auto" with the value of the command, and rejects any other value.
    return {**fabric_arguments, "devices": devices}


def register() -> list[str]:
    """Register accelerators and strategies with Lightning by name, and return the accelerators' names.

    Call this function before the `Trainer` is created. A program or a YAML file can then use names:
    `Trainer(accelerator="npu", strategy="accel")`. Each backend with an installed plugin is registered under
    its name, except names that Lightning itself uses (`cpu`, `cuda`, `mps`). The strategies are `accel` for
    one device, and `accel_ddp` and `accel_fsdp` for several devices. Lightning's `auto` then selects the
    chosen accelerator where Lightning would otherwise use the CPU. No vendor package is imported. A second
    call changes nothing.
    """
    strategies = {
        STRATEGY: "SingleDevice",
        STRATEGY_DDP: "DataParallel",
        STRATEGY_FSDP: "FullySharded",
    }
    accelerator_names = _classes.register(strategies)
    for subpackage in ("pytorch", "fabric"):
        _auto.replace_entries_for_auto(subpackage)
    return accelerator_names


def prepare() -> None:
    """Install an import hook that makes Lightning's `auto` use the accelerator that accel_core chooses.

    `accel run` calls this function. No accelerator is chosen until a `Trainer` or a `Fabric` is created.
    `accelerator="cpu"` still selects the CPU.
    """
    _hook.install()


@contextlib.contextmanager
def _register_on_import(module: ModuleType) -> Iterator[None]:
    """Register entries for `auto` right after Lightning's connector is imported, before it reads them."""
    yield
    # If this release of Lightning is not supported, `auto` keeps Lightning's meaning.
    with contextlib.suppress(ImportError, AttributeError, KeyError, TypeError):
        _auto.replace_entries_for_auto(LIGHTNING_CONNECTORS[module.__name__])


_hook = ImportHook(
    contexts=dict.fromkeys(LIGHTNING_CONNECTORS, _register_on_import),
    callbacks={},
)


def _lightning_options(
    subpackage: str,
    name: str | None,
    devices: int | str | list[int],
    num_nodes: int,
    strategy: str,
    strategy_options: dict[str, Any],
) -> LightningOptions:
    """Return the arguments for Lightning's `Trainer` (`subpackage` "pytorch") or `Fabric` ("fabric").

    `strategy_options` are arguments of the strategy's class. Raises the same errors as `trainer_options`.
    """
    accelerator_class = _classes.accelerator_class(subpackage, name)
    if devices == "auto":
        # Under a launcher, one device for each rank of a host; otherwise all devices.
        launched_count = launched_ranks_per_node(num_nodes)
        was_launched = launched_count > 0
        if was_launched:
            devices = launched_count
        else:
            devices = accelerator_class.auto_device_count()
    indices = device_indices(accelerator_class.core_accelerator(), devices)
    strategy_name = strategy
    if strategy == "auto":
        strategy_name = "ddp"
    if strategy_name not in _CLASS_OF_STRATEGY:
        raise IntegrationError(
            _UNSUPPORTED_STRATEGY.format(
                strategy=strategy, backend=accelerator_class.backend_name
            )
        )
    classes = _classes.derived_classes(subpackage)
    is_single_device = len(indices) == 1 and num_nodes == 1
    if strategy == "auto" and is_single_device:
        strategy_object = classes.SingleDevice()
    else:
        strategy_class = getattr(classes, _CLASS_OF_STRATEGY[strategy_name])
        strategy_object = strategy_class(**strategy_options)
    return {
        "accelerator": accelerator_class(),
        "strategy": strategy_object,
        "devices": accelerator_class.parse_devices(devices),
        "num_nodes": num_nodes,
    }
