"""Make Lightning use the accelerator that accel_core chose: a Lightning `Accelerator`, and strategies for it.

    from lightning.pytorch import Trainer
    from accel_train.lightning import trainer_options

    trainer = Trainer(**trainer_options(), max_epochs=3)

Lightning recognizes its own accelerators by class. It gives any other accelerator the device `cpu`, unless a
strategy sets another one, so this module returns the accelerator and the strategy together. Importing this
module does not import Lightning. Its functions use `lightning`; if the process has imported only
`pytorch_lightning` (`lightning_fabric`), or only that is installed, they use that.
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
from accel_train.lightning._kit import launched_ranks
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

#: Names of the strategies that `register` adds: one device, and a process per device.
STRATEGY = "accel"
STRATEGY_DDP = "accel_ddp"
STRATEGY_FSDP = "accel_fsdp"
#: Our class for each of Lightning's strategies, by name.
_CLASS_OF_STRATEGY = {
    "ddp": "DataParallel",
    "fsdp": "FullySharded",
    "model_parallel": "ModelParallel",
}
_UNSUPPORTED_STRATEGY = (
    "strategy={strategy!r}: on {backend} Lightning trains with auto, ddp, fsdp or model_parallel. Its "
    "deepspeed strategy supports CUDA only: use DeepSpeed itself, after accel_train.deepspeed.activate()"
)


class LightningOptions(TypedDict):
    """Result of `trainer_options` and `fabric_options`, for `Trainer(**options)` and `Fabric(**options)`."""

    #: Lightning's `Accelerator` and `Strategy`, of the Lightning package that the process has imported.
    accelerator: Any
    strategy: Any
    devices: list[int] | int | str
    num_nodes: int


def accelerator(name: str | None = None) -> Any:
    """Return a Lightning `Accelerator` for the backend `name`, or for the accelerator this process chose.

    On the CPU, `Trainer(accelerator=...)` or `Fabric(accelerator=...)` needs nothing else. On any other
    device a strategy must go with it: `trainer_options` and `fabric_options` return both. Raises
    `IntegrationMissingError` without Lightning 2.3 or newer, and what `accel_core.accelerator(name)` raises.
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
    """Return the arguments `accelerator`, `strategy`, `devices` and `num_nodes` of a Lightning `Trainer`.

    `devices` is a count, a list of indices, `"0,2"`, or -1 for all. With `"auto"` it is the number of ranks
    on this host if torchrun or `accel run` started them; else all devices, or one process on the CPU.
    `strategy` is `"ddp"`, `"fsdp"`, `"model_parallel"`, or `"auto"`: DDP for several devices or nodes, else a
    single device. `options` are arguments of Lightning's class for that strategy: `DDPStrategy`,
    `FSDPStrategy`, `ModelParallelStrategy`. Raises `ValueError` for devices that do not exist,
    `IntegrationError` for another strategy, and what `accelerator` raises.
    """
    return _options("pytorch", name, devices, num_nodes, strategy, options)


def fabric_options(
    name: str | None = None,
    *,
    devices: int | str | list[int] = "auto",
    num_nodes: int = 1,
    strategy: str = "auto",
    **options: Any,
) -> LightningOptions:
    """Return the same arguments for a Lightning `Fabric`; parameters as in `trainer_options`.

    Under `fabric run` its `--devices` and `--num-nodes` hold, and `devices` here may only repeat them.
    """
    if not os.environ.get("LT_CLI_USED"):
        return _options("fabric", name, devices, num_nodes, strategy, options)
    num_nodes = int(os.environ.get("LT_NUM_NODES", num_nodes))
    fabric_arguments = _options("fabric", name, devices, num_nodes, strategy, options)
    # Fabric replaces "auto" by the command's value, and rejects any other value.
    return {**fabric_arguments, "devices": devices}


def register() -> list[str]:
    """Register our classes by name: `Trainer(accelerator="npu", strategy="accel")`, as in YAML files.

    Every backend with an installed plugin gets its name in Lightning's registries, except names that
    Lightning uses itself (`cpu`, `cuda`, `mps`). The strategies are `accel` for one device, `accel_ddp` and
    `accel_fsdp` for several. `auto` then finds the chosen accelerator where Lightning alone would take the
    CPU. Returns the names of the accelerators. Imports no vendor; a second call changes nothing. Lightning
    does not discover accelerators, so call this before the `Trainer` is made.
    """
    strategies = {
        STRATEGY: "SingleDevice",
        STRATEGY_DDP: "DataParallel",
        STRATEGY_FSDP: "FullySharded",
    }
    accelerator_names = _classes.register(strategies)
    for subpackage in ("pytorch", "fabric"):
        _auto.register(subpackage)
    return accelerator_names


def prepare() -> None:
    """Install an import hook by which Lightning's `auto` uses our accelerator; `accel run` calls this.

    Nothing is chosen until a `Trainer` or a `Fabric` is made, and `accelerator="cpu"` still means the CPU.
    """
    _hook.install()


@contextlib.contextmanager
def _register_on_import(module: ModuleType) -> Iterator[None]:
    """Register for `auto` right after Lightning's connector is imported, before it reads the registries."""
    yield
    # In a release that this does not fit, `auto` keeps Lightning's meaning.
    with contextlib.suppress(ImportError, AttributeError, KeyError, TypeError):
        _auto.register(LIGHTNING_CONNECTORS[module.__name__])


_hook = ImportHook(dict.fromkeys(LIGHTNING_CONNECTORS, _register_on_import), {})


def _options(
    subpackage: str,
    name: str | None,
    devices: int | str | list[int],
    num_nodes: int,
    strategy: str,
    options: dict[str, Any],
) -> LightningOptions:
    """Return the arguments for Lightning's `Trainer` (`subpackage` "pytorch") or `Fabric` ("fabric").

    `options` are arguments of the strategy's class. Raises what `trainer_options` raises.
    """
    accelerator_class = _classes.accelerator_class(subpackage, name)
    if devices == "auto":
        devices = launched_ranks(num_nodes) or accelerator_class.auto_device_count()
    indices = device_indices(accelerator_class.core_accelerator(), devices)
    strategy_name = "ddp" if strategy == "auto" else strategy
    if strategy_name not in _CLASS_OF_STRATEGY:
        raise IntegrationError(
            _UNSUPPORTED_STRATEGY.format(
                strategy=strategy, backend=accelerator_class.backend_name
            )
        )
    classes = _classes.derived_classes(subpackage)
    if strategy == "auto" and len(indices) == num_nodes == 1:
        strategy_object = classes.SingleDevice()
    else:
        strategy_class = getattr(classes, _CLASS_OF_STRATEGY[strategy_name])
        strategy_object = strategy_class(**options)
    return {
        "accelerator": accelerator_class(),
        "strategy": strategy_object,
        "devices": accelerator_class.parse_devices(devices),
        "num_nodes": num_nodes,
    }
