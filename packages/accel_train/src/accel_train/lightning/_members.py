"""Members of our Lightning accelerators and strategies, for any of Lightning's packages.

This module does not import Lightning: `_classes` combines these classes with Lightning's.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import accel_core
from accel_core.errors import AccelError, IntegrationError
from accel_core.torch_import import import_torch
from accel_train.compiling import while_training
from accel_train.launch.communication import communication_of
from accel_train.moving import keep_parameters

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = [
    "AcceleratorMembers", "FullyShardedMembers", "Names", "ProcessesMembers", "ShardedPrecisionMembers",
    "SingleDeviceMembers", "device_indices", "for_our_device",
]  # fmt: skip

_NEXT = "Use Trainer(**accel_train.lightning.trainer_options()), or fabric_options for Fabric."


class Names(NamedTuple):
    """Names of a strategy's members, which differ between Lightning's `Trainer` and its `Fabric`."""

    precision: str
    set_ranks: str
    reduce: str
    device_ids: str
    fsdp_options: str


class AcceleratorMembers:
    """The members of Lightning's `Accelerator`, on the accelerator of the backend `backend_name`.

    Lightning calls most of them on the class, so each backend has its own class.
    """

    backend_name: ClassVar[str]
    #: From `setup_device` to `teardown`: torch.compile's default is the device's compiler.
    _compiling: AbstractContextManager[None] | None = None

    @classmethod
    def ours(cls) -> Accelerator:
        """Return accel_core's accelerator. Raises what `accel_core.accelerator(name)` raises."""
        return accel_core.accelerator(cls.backend_name)

    def setup_device(self, device: torch.device) -> None:
        """Select the device for this process, and its compiler as the default of torch.compile.

        Raises `IntegrationError` for a device of another type.
        """
        ours = self.ours()
        if device.type != ours.device().type:
            raise IntegrationError(
                f"Lightning's strategy places the model on {device}, and the accelerator is {ours.name} "
                f"(device type {ours.device().type}): Lightning does so with an accelerator it does not know "
                f"if no strategy is given. {_NEXT}"
            )
        if device.index is not None:
            ours.set_device(device.index)
        keep_parameters(ours)
        if self._compiling is None:
            self._compiling = while_training(ours)
            self._compiling.__enter__()

    def setup(self, trainer: Any) -> None:
        """Prepare for the `Trainer`. Raises `IntegrationError` if its autocast is for another device."""
        meant = getattr(trainer.precision_plugin, "device", None)
        if isinstance(meant, str) and meant != self.ours().device().type:
            raise IntegrationError(
                f"Lightning's mixed precision is for {meant}, and the accelerator is {self.ours().name}: "
                f"Lightning takes {meant} with an accelerator it does not know, without our strategy. "
                f"{_NEXT}"
            )

    def teardown(self) -> None:
        """Return cached memory to the device, and restore torch.compile's default."""
        if self._compiling is not None:
            self._compiling.__exit__(None, None, None)
            self._compiling = None
        self.ours().empty_cache()

    def get_device_stats(self, device: torch.device) -> dict[str, float]:
        """Return the device's memory statistics, in bytes and counts under torch's keys."""
        stats = self.ours().memory_stats(device.index)
        return {
            key: value for key, value in stats.items() if isinstance(value, int | float)
        }

    @classmethod
    def parse_devices(cls, devices: int | str | list[int]) -> list[int] | int:
        """Return device indices; on the CPU a count. Raises `ValueError` for missing devices."""
        indices = device_indices(cls.ours(), devices)
        return len(indices) if _is_cpu(cls.ours()) else indices

    @classmethod
    def get_parallel_devices(cls, devices: list[int] | int) -> list[torch.device]:
        """Return the `torch.device` of each process on this host."""
        ours = cls.ours()
        return [ours.device(index) for index in device_indices(ours, devices)]

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of devices; on the CPU one, as Lightning does."""
        return 1 if _is_cpu(cls.ours()) else cls.ours().device_count()

    @classmethod
    def is_available(cls) -> bool:
        """Return whether the backend can be used and has a device; never raises."""
        try:
            return cls.ours().is_available()
        except AccelError:
            return False

    @classmethod
    def name(cls) -> str:
        """Return the backend's name."""
        return cls.backend_name

    @classmethod
    def register_accelerators(cls, accelerator_registry: Any) -> None:
        """Add this class to a registry of Lightning's under the backend's name."""
        accelerator_registry.register(
            cls.backend_name, cls, description=f"accel_core: {cls.backend_name}"
        )


def device_indices(ours: Accelerator, devices: Any) -> list[int]:
    """Return the indices that `devices` means: a count, -1, a list, or one of these as text.

    On the CPU any count is valid, because processes share it. If torchrun started the ranks and each sees one
    device, each rank uses that device. Raises `ValueError` for anything else.
    """
    cpu, count = _is_cpu(ours), ours.device_count()
    shown_one = (
        not cpu and count == 1 and import_torch().distributed.is_torchelastic_launched()
    )
    wanted = _parsed(devices)
    if type(wanted) is int and wanted == -1:
        wanted = list(range(1 if cpu else count))
    elif type(wanted) is int:
        wanted = (
            [0] * wanted if shown_one else list(range(wanted))
        )  # empty, and so refused, for 0 and below
    if (
        isinstance(wanted, list)
        and wanted
        and all(
            type(index) is int and index >= 0 and (cpu or index < count)
            for index in wanted
        )
        and (shown_one or len(set(wanted)) == len(wanted))
    ):
        return wanted
    raise ValueError(
        f"devices={devices!r}: {ours.name} has {count or 'no'} device{'' if count == 1 else 's'} here; "
        "expected a count, a list of different indices, or -1 for all"
    )


def _parsed(devices: Any) -> Any:
    """`devices` with text read as an `int`, or with commas as a list; what cannot be read stays as it is."""
    if not isinstance(devices, str):
        return devices
    try:
        indices = [int(part) for part in devices.split(",") if part.strip()]
    except ValueError:
        return devices
    return indices if "," in devices or not indices else indices[0]


def _is_cpu(ours: Accelerator) -> bool:
    return ours.device().type == "cpu"


class SingleDeviceMembers:
    """Members of a strategy for one process on one device, the accelerator's current one."""

    #: Set by Lightning's connector, to what the accelerator's `get_parallel_devices` gave.
    parallel_devices: list[torch.device] | None = None

    @property
    def root_device(self) -> torch.device:
        """Return the device that the model is on."""
        if self.parallel_devices:
            return self.parallel_devices[0]
        device: torch.device = super().root_device  # type: ignore[misc]
        return device


class ProcessesMembers:
    """Members of a strategy with a process per device, over the accelerator's communication backend."""

    names: ClassVar[Names]
    accelerator: Any
    root_device: torch.device

    def setup_environment(self) -> None:
        """Select the device and start the process group."""
        getattr(self, self.names.set_ranks)()
        _start_process_group(self)
        super().setup_environment()  # type: ignore[misc]

    def device_ids(self) -> list[int] | None:
        """Return the `device_ids` for DistributedDataParallel: one index on CUDA, else `None`."""
        # Given device ids, Lightning opens a CUDA stream, whatever the device; DDP itself needs none.
        return (
            [self.root_device.index or 0] if self.root_device.type == "cuda" else None
        )

    def averaged(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the tensor reduced over all processes; return anything else unchanged."""
        # Lightning takes gloo alone to lack averages (of whole numbers too); others lack them as well.
        reduce = getattr(super(), self.names.reduce)
        torch = import_torch()
        if (
            str(reduce_op).lower() not in ("mean", "avg")
            or self.root_device.type in ("cpu", "cuda")
            or not isinstance(tensor, torch.Tensor)
        ):
            return reduce(tensor, group, reduce_op)
        total = reduce(tensor, group, "sum")
        return total.copy_(total / torch.distributed.get_world_size(group))

    def _get_process_group_backend(self) -> str:
        # Called for the CPU and CUDA, and to tell of a group that is there already.
        return _communication_backend(self)


class FullyShardedMembers(ProcessesMembers):
    """FullyShardedDataParallel with a process per device; Lightning's own class supports only CUDA."""

    def setup_environment(self) -> None:
        """Select the device, start the process group, and make the device mesh that was requested."""
        if self.root_device.type == "cpu":
            raise IntegrationError(
                "torch's FullyShardedDataParallel does not run on the CPU. Use "
                "strategy='model_parallel' with fully_shard, or strategy='ddp'"
            )
        options = getattr(self, self.names.fsdp_options)
        mesh = options.pop(
            "device_mesh", None
        )  # of numbers Lightning would make one of CUDA's
        super().setup_environment()
        if mesh is not None:
            make = import_torch().distributed.device_mesh.init_device_mesh
            options["device_mesh"] = (
                make(self.root_device.type, mesh) if isinstance(mesh, tuple) else mesh
            )


class ShardedPrecisionMembers:
    """Lightning's precision plugin for FSDP, with autocast and scaler for `device` instead of CUDA."""

    precision: str
    scaler: Any

    def __init__(self, precision: str, device: str) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        self.device = device
        if self.scaler is not None:
            self.scaler = type(self.scaler)(device)

    def forward_context(self) -> Any:
        """Return autocast on the device for mixed precision, else Lightning's own context."""
        if "mixed" not in self.precision:
            return super().forward_context()  # type: ignore[misc]
        torch = import_torch()
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast(self.device, dtype=dtype)


def for_our_device(precision: property, sharded: Any = None) -> property:
    """Return a strategy's property for its precision plugin, which makes mixed precision for our device.

    Lightning makes it for CUDA if it does not know the accelerator. `sharded` is our class in place of
    `FSDPPrecision`. Raises `IntegrationError` for a number format that the device lacks.
    """

    def get(strategy: Any) -> Any:
        return precision.__get__(strategy)

    def replace(strategy: Any, plugin: Any) -> None:
        if isinstance(strategy.accelerator, AcceleratorMembers) and plugin is not None:
            ours = strategy.accelerator.ours()
            _require_format(ours, str(getattr(plugin, "precision", "")))
            plugin = _for(ours.device().type, plugin, sharded)
        precision.__set__(strategy, plugin)

    return property(get, replace)


def _for(wanted: str, plugin: Any, sharded: Any) -> Any:
    if sharded is not None and type(plugin) is sharded.__mro__[2]:
        return sharded(plugin.precision, wanted)
    meant = getattr(plugin, "device", None)
    if not isinstance(meant, str) or meant == wanted:
        return plugin
    return type(plugin)(plugin.precision, wanted)


def _require_format(ours: Accelerator, precision: str) -> None:
    has = {
        "16": ours.is_fp16_supported,
        "bf16": ours.is_bf16_supported,
        "64": ours.is_fp64_supported,
    }
    bits = precision.partition("-")[0]
    if bits in has and not _is_cpu(ours) and not has[bits]():
        others = [
            name for name, supported in has.items() if name != "64" and supported()
        ]
        raise IntegrationError(
            f"precision={precision!r}: {ours.name} does not support this number format. Use "
            f"{' or '.join(repr(name + '-mixed') for name in others) or 'none'}, or '32-true'"
        )


def _start_process_group(strategy: Any) -> None:
    """Start the process group with our communication backend, unless there is one.

    Lightning would bind the group to the device, which needs a backend in C++; a vendor's may be in Python.
    For CUDA, where NCCL gains from it, and for the CPU, Lightning's own way is left alone.
    """
    distributed = import_torch().distributed
    if strategy.root_device.type in ("cpu", "cuda") or distributed.is_initialized():
        return
    strategy.accelerator.setup_device(strategy.root_device)
    cluster = strategy.cluster_environment
    os.environ["MASTER_ADDR"] = cluster.main_address
    os.environ["MASTER_PORT"] = str(cluster.main_port)
    distributed.init_process_group(
        _communication_backend(strategy),
        rank=cluster.global_rank(),
        world_size=cluster.world_size(),
        timeout=strategy._timeout,
    )


def _communication_backend(strategy: Any) -> str:
    """torch.distributed's backend: the strategy's own, what `accel run` says, or the accelerator's."""
    return communication_of(strategy.accelerator.ours(), strategy.process_group_backend)
