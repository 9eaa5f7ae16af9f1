"""Lightning on accel_core's accelerator: a Lightning `Accelerator` and the strategies that go with it.

    from lightning.pytorch import Trainer
    from accel_train.lightning import trainer_options

    trainer = Trainer(**trainer_options(), max_epochs=3)

Lightning's connector knows its own accelerators by class. Another one gets `cpu` as its device unless a
strategy says otherwise, so the accelerator and the strategy come together here. Importing this module imports
no Lightning; its functions use `lightning`, or `pytorch_lightning` (`lightning_fabric`) where that is what
the process has imported or all that is installed.
"""

from __future__ import annotations

from typing import Any, TypedDict

from accel_core.errors import IntegrationError
from accel_train.lightning import _classes
from accel_train.lightning._kit import ranks_here
from accel_train.lightning._members import device_indices

__all__ = [
    "STRATEGY",
    "STRATEGY_DDP",
    "STRATEGY_FSDP",
    "LightningOptions",
    "accelerator",
    "fabric_options",
    "register",
    "trainer_options",
]

#: Names of the strategies that `register` adds: one device, and a process per device.
STRATEGY = "accel"
STRATEGY_DDP = "accel_ddp"
STRATEGY_FSDP = "accel_fsdp"
#: Our classes by the names that Lightning's strategies have.
_STRATEGIES = {"ddp": "DataParallel", "fsdp": "FullySharded", "model_parallel": "ModelParallel"}
_NO_STRATEGY = (
    "strategy={strategy!r}: on {ours} Lightning trains with auto, ddp, fsdp or model_parallel. Its "
    "deepspeed is for CUDA alone: use DeepSpeed itself, after accel_train.deepspeed.activate()"
)


class LightningOptions(TypedDict):
    """Result of `trainer_options` and `fabric_options`, for `Trainer(**options)` and `Fabric(**options)`."""

    #: Lightning's `Accelerator` and `Strategy`: which package's, the process's imports say.
    accelerator: Any
    strategy: Any
    devices: list[int] | int
    num_nodes: int


def accelerator(name: str | None = None) -> Any:
    """A Lightning `Accelerator` for the backend `name`; without a name, for the one this process chose.

    On the CPU it can be all that `Trainer(accelerator=...)` or `Fabric(accelerator=...)` gets. On any other
    device a strategy must go with it: `trainer_options` and `fabric_options` give both. Raises
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
    """The arguments `accelerator`, `strategy`, `devices` and `num_nodes` of a Lightning `Trainer`.

    `devices` is a count, a list of indices, `"0,2"`, or -1 for all. `"auto"`: as many as this host's ranks
    where torchrun or `accel run` started them, else all devices, of the CPU one. `strategy` is `"ddp"`,
    `"fsdp"`, `"model_parallel"`, or `"auto"`: DDP for several devices or nodes, else one device. `options`
    go to Lightning's class of that name: `DDPStrategy`, `FSDPStrategy`, `ModelParallelStrategy`. Raises
    `ValueError` for devices that are not there, `IntegrationError` for another strategy, and what
    `accelerator` raises.
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
    """The same for `Fabric`."""
    return _options("fabric", name, devices, num_nodes, strategy, options)


def register() -> list[str]:
    """Let Lightning find us by string: `Trainer(accelerator="npu", strategy="accel")`, as in YAML files.

    Every backend with an installed plugin gets its name in Lightning's registries, save names that Lightning
    has (`cpu`, `cuda`, `mps`); the strategies are `accel` for one device, `accel_ddp` and `accel_fsdp` for
    several. Gives the names of the accelerators. Imports no vendor; calling it again changes nothing.
    Lightning has no discovery of accelerators, so this must be called before the `Trainer` is made.
    """
    ours = {STRATEGY: "SingleDevice", STRATEGY_DDP: "DataParallel", STRATEGY_FSDP: "FullySharded"}
    return _classes.register(ours)


def _options(
    kind: str,
    name: str | None,
    devices: int | str | list[int],
    num_nodes: int,
    strategy: str,
    options: dict[str, Any],
) -> LightningOptions:
    ours = _classes.accelerator_class(kind, name)
    if devices == "auto":
        devices = ranks_here(num_nodes) or ours.auto_device_count()
    indices = device_indices(ours.ours(), devices)
    single = strategy == "auto" and len(indices) == num_nodes == 1
    chosen = "ddp" if strategy == "auto" else strategy
    if chosen not in _STRATEGIES:
        raise IntegrationError(_NO_STRATEGY.format(strategy=strategy, ours=ours.backend_name))
    classes = _classes.classes(kind)
    return {
        "accelerator": ours(),
        "strategy": classes.SingleDevice() if single else getattr(classes, _STRATEGIES[chosen])(**options),
        "devices": ours.parse_devices(devices),
        "num_nodes": num_nodes,
    }
