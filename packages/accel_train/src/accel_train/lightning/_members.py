"""Define the members of our Lightning accelerators and strategies, for any of Lightning's packages.

This module does not import Lightning: `_classes` combines these classes with Lightning's.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import accel_core
from accel_core.errors import AccelError, IntegrationError
from accel_core.torch_import import import_torch
from accel_train.compiling import default_compiler_for_integration
from accel_train.launch.communication import communication_of
from accel_train.moving import keep_parameters

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = [
    "AcceleratorMembers", "FullyShardedMembers", "Names", "ProcessesMembers", "ShardedPrecisionMembers",
    "SingleDeviceMembers", "device_indices", "precision_for_device",
]  # fmt: skip

_NEXT_STEP = "Use Trainer(**accel_train.lightning.trainer_options()), or fabric_options for Fabric."


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
    #: The context in which torch.compile's default is the device's compiler: `setup_device` to `teardown`.
    _compiler_context: AbstractContextManager[None] | None = None

    @classmethod
    def core_accelerator(cls) -> Accelerator:
        """Return accel_core's accelerator. Raises what `accel_core.accelerator(name)` raises."""
        return accel_core.accelerator(cls.backend_name)

    def setup_device(self, device: torch.device) -> None:
        """Select the device for this process, and its compiler as the default of torch.compile.

        Raises `IntegrationError` for a device of another type.
        """
        accelerator = self.core_accelerator()
        if device.type != accelerator.device().type:
            raise IntegrationError(
                f"Lightning's strategy places the model on {device}, but the accelerator is "
                f"{accelerator.name} (device type {accelerator.device().type}). Lightning does so if no "
                f"strategy is given for an accelerator that it does not support. {_NEXT_STEP}"
            )
        if device.index is not None:
            accelerator.set_device(device.index)
        keep_parameters(accelerator)
        if self._compiler_context is None:
            self._compiler_context = default_compiler_for_integration(accelerator)
            self._compiler_context.__enter__()

    def setup(self, trainer: Any) -> None:
        """Prepare for the `Trainer`. Raises `IntegrationError` if its autocast is for another device."""
        accelerator = self.core_accelerator()
        autocast_device = getattr(trainer.precision_plugin, "device", None)
        if not isinstance(autocast_device, str):
            return
        if autocast_device != accelerator.device().type:
            raise IntegrationError(
                f"Lightning's mixed precision is for {autocast_device}, but the accelerator is "
                f"{accelerator.name}. Without accel-train's strategy, Lightning uses {autocast_device} for "
                f"an accelerator that it does not support. {_NEXT_STEP}"
            )

    def teardown(self) -> None:
        """Return cached memory to the device, and restore torch.compile's default."""
        if self._compiler_context is not None:
            self._compiler_context.__exit__(None, None, None)
            self._compiler_context = None
        self.core_accelerator().empty_cache()

    def get_device_stats(self, device: torch.device) -> dict[str, float]:
        """Return the device's memory statistics, in bytes and counts under torch's keys."""
        stats = self.core_accelerator().memory_stats(device.index)
        return {
            key: value for key, value in stats.items() if isinstance(value, int | float)
        }

    @classmethod
    def parse_devices(cls, devices: int | str | list[int]) -> list[int] | int:
        """Return device indices; on the CPU a count. Raises `ValueError` for missing devices."""
        indices = device_indices(cls.core_accelerator(), devices)
        return len(indices) if _is_cpu(cls.core_accelerator()) else indices

    @classmethod
    def get_parallel_devices(cls, devices: list[int] | int) -> list[torch.device]:
        """Return the `torch.device` of each process on this host."""
        accelerator = cls.core_accelerator()
        return [
            accelerator.device(index) for index in device_indices(accelerator, devices)
        ]

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of devices; on the CPU one, as Lightning does."""
        return (
            1
            if _is_cpu(cls.core_accelerator())
            else cls.core_accelerator().device_count()
        )

    @classmethod
    def is_available(cls) -> bool:
        """Return whether the backend can be used and has a device; never raises."""
        try:
            return cls.core_accelerator().is_available()
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


def device_indices(accelerator: Accelerator, devices: Any) -> list[int]:
    """Return the indices that `devices` means: a count, -1, a list, or one of these as text.

    On the CPU any count is valid, because processes share it. If torchrun started the ranks and each sees one
    device, each rank uses that device. Raises `ValueError` for anything else.
    """
    is_cpu, count = _is_cpu(accelerator), accelerator.device_count()
    # Each rank of torchrun may see its own device only, as device 0.
    share_index = False
    if count == 1 and not is_cpu:
        share_index = import_torch().distributed.is_torchelastic_launched()
    indices = _parsed_devices(devices)
    if type(indices) is int:
        all_devices = 1 if is_cpu else count
        indices = _indices_of_count(indices, all_devices, share_index=share_index)
    limit = None if is_cpu else count
    if _are_indices(indices, limit, may_repeat=share_index):
        valid_indices: list[int] = indices
        return valid_indices
    number = "1 device" if count == 1 else f"{count or 'no'} devices"
    raise ValueError(
        f"devices={devices!r}: {accelerator.name} has {number} here; "
        "expected a count, a list of different indices, or -1 for all"
    )


def _indices_of_count(
    devices: int, all_devices: int, *, share_index: bool
) -> list[int]:
    """Return the indices for a number of devices; -1 means `all_devices`, any other number below 1 none.

    `share_index`: every rank uses index 0.
    """
    if devices == -1:
        return list(range(all_devices))
    if share_index:
        return [0] * devices
    return list(range(devices))


def _are_indices(value: Any, limit: int | None, *, may_repeat: bool) -> bool:
    """Return whether `value` is a list of one index or more, all below `limit` unless that is `None`.

    `may_repeat`: an index may occur more than once.
    """
    if not isinstance(value, list) or not value:
        return False
    for index in value:
        if type(index) is not int or index < 0:
            return False
        if limit is not None and index >= limit:
            return False
    return may_repeat or len(set(value)) == len(value)


def _parsed_devices(devices: Any) -> Any:
    """Return text as an `int`, or as a list if it has commas; return what cannot be parsed unchanged."""
    if not isinstance(devices, str):
        return devices
    try:
        numbers = [int(part) for part in devices.split(",") if part.strip()]
    except ValueError:
        return devices
    is_single_number = len(numbers) >= 1 and "," not in devices
    return numbers[0] if is_single_number else numbers


def _is_cpu(accelerator: Accelerator) -> bool:
    """Return whether the accelerator is the CPU."""
    return accelerator.device().type == "cpu"


class SingleDeviceMembers:
    """Members of a strategy for one process on one device, the accelerator's current one."""

    #: Set by Lightning's connector to what the accelerator's `get_parallel_devices` returned.
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
        # With device ids Lightning opens a CUDA stream, whatever the device; DDP itself needs no ids.
        if self.root_device.type == "cuda":
            return [self.root_device.index or 0]
        return None

    def reduce_or_average(
        self, tensor: Any, group: Any = None, reduce_op: Any = "mean"
    ) -> Any:
        """Return the tensor reduced over all processes; return anything else unchanged."""
        # Lightning averages itself only for gloo; other communication backends have no average either.
        reduce = getattr(super(), self.names.reduce)
        torch = import_torch()
        is_average = str(reduce_op).lower() in ("mean", "avg")
        has_average = self.root_device.type in ("cpu", "cuda")
        if not is_average or has_average or not isinstance(tensor, torch.Tensor):
            return reduce(tensor, group, reduce_op)
        total = reduce(tensor, group, "sum")
        return total.copy_(total / torch.distributed.get_world_size(group))

    def _get_process_group_backend(self) -> str:
        """Return the name of the communication backend; Lightning calls this to start a group, or to log."""
        return _communication_backend(self)


class FullyShardedMembers(ProcessesMembers):
    """Methods that make Lightning's FullyShardedDataParallel strategy work on every device."""

    def setup_environment(self) -> None:
        """Select the device, start the process group, and make the device mesh that was requested."""
        if self.root_device.type == "cpu":
            raise IntegrationError(
                "torch's FullyShardedDataParallel does not run on the CPU. Use "
                "strategy='model_parallel' with fully_shard, or strategy='ddp'"
            )
        options = getattr(self, self.names.fsdp_options)
        # From a tuple of numbers Lightning would make a mesh for CUDA.
        mesh = options.pop("device_mesh", None)
        super().setup_environment()
        if isinstance(mesh, tuple):
            torch = import_torch()
            mesh = torch.distributed.device_mesh.init_device_mesh(
                self.root_device.type, mesh
            )
        if mesh is not None:
            options["device_mesh"] = mesh


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


def precision_for_device(precision: property, sharded: Any = None) -> property:
    """Return a property in place of a strategy's `precision`: a plugin set to it is changed for our device.

    Lightning makes mixed precision for CUDA if it does not support the accelerator. `sharded` is our class in
    place of `FSDPPrecision`. Setting raises `IntegrationError` for a number format that the device lacks.
    """

    def get_plugin(strategy: Any) -> Any:
        return precision.__get__(strategy)

    def set_plugin(strategy: Any, plugin: Any) -> None:
        if isinstance(strategy.accelerator, AcceleratorMembers) and plugin is not None:
            accelerator = strategy.accelerator.core_accelerator()
            _require_number_format(accelerator, str(getattr(plugin, "precision", "")))
            plugin = _plugin_for_device(accelerator.device().type, plugin, sharded)
        precision.__set__(strategy, plugin)

    return property(get_plugin, set_plugin)


def _plugin_for_device(device_type: str, plugin: Any, sharded: Any) -> Any:
    """Return Lightning's precision plugin for `device_type`: the same one if it is not for another device.

    `sharded`: our class in place of Lightning's `FSDPPrecision`, or `None`.
    """
    if sharded is not None:
        lightning_class = sharded.__mro__[2]  # after the class itself and our members
        if type(plugin) is lightning_class:
            return sharded(plugin.precision, device_type)
    plugin_device = getattr(plugin, "device", None)
    if not isinstance(plugin_device, str) or plugin_device == device_type:
        return plugin
    return type(plugin)(plugin.precision, device_type)


def _require_number_format(accelerator: Accelerator, precision: str) -> None:
    """Raise `IntegrationError` if the device lacks the format of Lightning's `precision` ("bf16-mixed")."""
    is_supported = {
        "16": accelerator.is_fp16_supported,
        "bf16": accelerator.is_bf16_supported,
        "64": accelerator.is_fp64_supported,
    }
    number_format = precision.partition("-")[0]
    if number_format not in is_supported or _is_cpu(accelerator):
        return
    if is_supported[number_format]():
        return
    alternatives = [
        repr(f"{name}-mixed") for name in ("16", "bf16") if is_supported[name]()
    ]
    raise IntegrationError(
        f"precision={precision!r}: {accelerator.name} does not support this number format. Use "
        f"{' or '.join(alternatives) or 'none'}, or '32-true'"
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
    """Return the communication backend: the strategy's, that of `accel run`, or the accelerator's."""
    return communication_of(
        strategy.accelerator.core_accelerator(), strategy.process_group_backend
    )
