"""Define the members of accel-train's Lightning accelerators and strategies, as mixin classes.

This module does not import Lightning. `_classes` combines these mixins with the classes of a Lightning
package.
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

_NEXT_STEP = (
    "Next step: use Trainer(**accel_train.lightning.trainer_options()) or "
    "Fabric(**accel_train.lightning.fabric_options())."
)


class Names(NamedTuple):
    """The names of strategy members that differ between Lightning's `Trainer` and `Fabric`."""

    precision: str
    set_ranks: str
    reduce: str
    device_ids: str
    fsdp_options: str


class AcceleratorMembers:
    """The members of Lightning's `Accelerator`, implemented with the accelerator of `backend_name`.

    Lightning calls most of these members on the class, so each backend has its own class.
    """

    backend_name: ClassVar[str]
    #: The active context manager in which torch.compile uses the device's compiler by default, or `None`.
    #: `setup_device` enters the context manager, and `teardown` leaves it.
    _compiler_context: AbstractContextManager[None] | None = None

    @classmethod
    def core_accelerator(cls) -> Accelerator:
        """Return accel_core's accelerator. Raises the same errors as `accel_core.accelerator(name)`."""
        return accel_core.accelerator(cls.backend_name)

    def setup_device(self, device: torch.device) -> None:
        """Select `device` for this process, and make the device's compiler the default for torch.compile.

        Raises `IntegrationError` if the type of `device` is not the accelerator's device type.
        """
        accelerator = self.core_accelerator()
        if device.type != accelerator.device().type:
            raise IntegrationError(
                f"Lightning's strategy places the model on {device}, but the accelerator is "
                f"{accelerator.name} (device type {accelerator.device().type}). For an accelerator that "
                f"Lightning does not support, Lightning uses {device} unless a strategy is passed. "
                f"{_NEXT_STEP}"
            )
        if device.index is not None:
            accelerator.set_device(device.index)
        keep_parameters(accelerator)
        if self._compiler_context is None:
            self._compiler_context = default_compiler_for_integration(accelerator)
            self._compiler_context.__enter__()

    def setup(self, trainer: Any) -> None:
        """Check that the `Trainer`'s autocast is for the accelerator's device type.

        Raises `IntegrationError` if it is for another device type.
        """
        accelerator = self.core_accelerator()
        autocast_device = getattr(trainer.precision_plugin, "device", None)
        if not isinstance(autocast_device, str):
            return
        if autocast_device != accelerator.device().type:
            raise IntegrationError(
                f"Lightning's mixed precision is for {autocast_device}, but the accelerator is "
                f"{accelerator.name}. For an accelerator that Lightning does not support, Lightning uses "
                f"{autocast_device} unless accel-train's strategy is passed. {_NEXT_STEP}"
            )

    def teardown(self) -> None:
        """Release the device's cached memory, and restore torch.compile's default compiler."""
        if self._compiler_context is not None:
            self._compiler_context.__exit__(None, None, None)
            self._compiler_context = None
        self.core_accelerator().empty_cache()

    def get_device_stats(self, device: torch.device) -> dict[str, float]:
        """Return the device's memory statistics, as bytes and counts under torch's keys."""
        stats = self.core_accelerator().memory_stats(device.index)
        return {
            name: value
            for name, value in stats.items()
            if isinstance(value, int | float)
        }

    @classmethod
    def parse_devices(cls, devices: int | str | list[int]) -> list[int] | int:
        """Return the device indices for `devices` or, on the CPU, the number of processes.

        Raises `ValueError` if a device does not exist.
        """
        accelerator = cls.core_accelerator()
        indices = device_indices(accelerator, devices)
        if _is_cpu(accelerator):
            return len(indices)  # A number of processes.
        return indices

    @classmethod
    def get_parallel_devices(cls, devices: list[int] | int) -> list[torch.device]:
        """Return the `torch.device` of each process on this host."""
        accelerator = cls.core_accelerator()
        indices = device_indices(accelerator, devices)
        return [accelerator.device(index) for index in indices]

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of devices or, on the CPU, 1, as Lightning's CPU accelerator does."""
        accelerator = cls.core_accelerator()
        if _is_cpu(accelerator):
            return 1
        return accelerator.device_count()

    @classmethod
    def is_available(cls) -> bool:
        """Return whether the backend can be used and has a device. An `AccelError` counts as False."""
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
        """Add this class to Lightning's `accelerator_registry` under the backend's name."""
        accelerator_registry.register(
            cls.backend_name, cls, description=f"accel_core: {cls.backend_name}"
        )


def device_indices(accelerator: Accelerator, devices: Any) -> list[int]:
    """Return the device indices for `devices`: a count, -1 for all devices, a list, or any of these as text.

    On the CPU, any count is valid, because processes share the CPU. If torchrun started the ranks and each
    rank sees only one device, each rank uses index 0. Raises `ValueError` if a device does not exist, or if
    `devices` has any other value.
    """
    is_cpu = _is_cpu(accelerator)
    count = accelerator.device_count()
    # Under torchrun, only one device may be visible to each rank, with index 0.
    all_use_index_0 = False
    if count == 1 and not is_cpu:
        all_use_index_0 = import_torch().distributed.is_torchelastic_launched()
    number_for_all = count
    limit: int | None = count
    if is_cpu:
        # "All devices" is one process, but any number of processes may use the CPU.
        number_for_all, limit = 1, None
    indices = _parse_devices(devices)
    is_count = type(indices) is int
    if is_count:
        indices = _first_indices(
            indices, number_for_all, all_use_index_0=all_use_index_0
        )
    if not _are_indices(indices, limit, may_repeat=all_use_index_0):
        available = f"{count or 'no'} devices"
        if count == 1:
            available = "1 device"
        raise ValueError(
            f"devices={devices!r} is not valid for {accelerator.name}, which has {available} on this host; "
            "expected a count, a list of different indices, or -1 for all devices"
        )
    valid_indices: list[int] = indices
    return valid_indices


def _first_indices(
    requested: int, number_for_all: int, *, all_use_index_0: bool
) -> list[int]:
    """Return the indices of the first `requested` devices. -1 means the first `number_for_all` devices.

    Any other number below 1 gives an empty list. With `all_use_index_0`, every rank uses index 0.
    """
    if requested == -1:
        return list(range(number_for_all))
    if all_use_index_0:
        return [0] * requested
    return list(range(requested))


def _are_indices(value: Any, limit: int | None, *, may_repeat: bool) -> bool:
    """Return whether `value` is a list of one or more device indices that are below `limit`.

    `limit=None` means no limit. With `may_repeat`, an index may occur more than once.
    """
    if not isinstance(value, list) or not value:
        return False
    for index in value:
        if type(index) is not int or index < 0:
            return False
        if limit is not None and index >= limit:
            return False
    is_repeated = len(set(value)) < len(value)
    return may_repeat or not is_repeated


def _parse_devices(devices: Any) -> Any:
    """Return the number or the list of numbers in a text such as `"2"` or `"0,2"`.

    Any other value is returned unchanged.
    """
    if not isinstance(devices, str):
        return devices
    parts = [part.strip() for part in devices.split(",")]
    try:
        numbers = [int(part) for part in parts if part]
    except ValueError:
        return devices
    # "2" is a count, but "2," is a list with one index.
    is_count = bool(numbers) and "," not in devices
    if is_count:
        return numbers[0]
    return numbers


def _is_cpu(accelerator: Accelerator) -> bool:
    """Return whether the accelerator is the CPU."""
    return accelerator.device().type == "cpu"


class SingleDeviceMembers:
    """The members of a Lightning strategy for one process on one device."""

    #: Lightning's connector sets this to the return value of the accelerator's `get_parallel_devices`.
    parallel_devices: list[torch.device] | None = None

    @property
    def root_device(self) -> torch.device:
        """Return the device that the model is placed on."""
        if self.parallel_devices:
            return self.parallel_devices[0]
        device: torch.device = super().root_device  # type: ignore[misc]
        return device


class ProcessesMembers:
    """The members of a strategy with one process per device and the accelerator's communication backend."""

    names: ClassVar[Names]
    accelerator: Any
    root_device: torch.device

    def setup_environment(self) -> None:
        """Select this process's device and start the process group."""
        set_world_ranks = getattr(self, self.names.set_ranks)
        set_world_ranks()
        _start_process_group(self)
        super().setup_environment()  # type: ignore[misc]

    def device_ids(self) -> list[int] | None:
        """Return the `device_ids` for DistributedDataParallel.

        This is a list with one index on CUDA, and `None` on any other device.
        """
        # With device ids, Lightning would open a CUDA stream even on other vendors' devices. DDP itself needs
        # no ids.
        if self.root_device.type == "cuda":
            return [self.root_device.index or 0]
        return None

    def reduce_or_average(
        self, tensor: Any, group: Any = None, reduce_op: Any = "mean"
    ) -> Any:
        """Return `tensor` reduced over all processes of `group`. The default `reduce_op` is the mean.

        A value that is not a tensor is returned unchanged.
        """
        # Some communication backends have no average, and Lightning works around that only for gloo.
        lightning_reduce = getattr(super(), self.names.reduce)
        torch = import_torch()
        is_average = str(reduce_op).lower() in ("mean", "avg")
        backend_has_average = self.root_device.type in ("cpu", "cuda")
        is_tensor = isinstance(tensor, torch.Tensor)
        if not is_average or backend_has_average or not is_tensor:
            return lightning_reduce(tensor, group, reduce_op)
        total = lightning_reduce(tensor, group, "sum")
        return total.copy_(total / torch.distributed.get_world_size(group))

    def _get_process_group_backend(self) -> str:
        """Return the communication backend's name, with which Lightning starts a group and which it logs."""
        return _communication_backend(self)


class FullyShardedMembers(ProcessesMembers):
    """The members that make Lightning's FullyShardedDataParallel strategy work on every accelerator."""

    def setup_environment(self) -> None:
        """Select the device, start the process group, and create the device mesh if one was requested.

        Raises `IntegrationError` if the accelerator is the CPU.
        """
        if self.root_device.type == "cpu":
            raise IntegrationError(
                "torch's FullyShardedDataParallel does not run on the CPU. Next step: use "
                "strategy='model_parallel' with fully_shard, or strategy='ddp'"
            )
        options = getattr(self, self.names.fsdp_options)
        # Removed, because Lightning would create a mesh for CUDA from a tuple of sizes.
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
    """The members of an FSDP precision plugin that uses `device`. Lightning's own plugin uses CUDA."""

    precision: str
    scaler: Any

    def __init__(self, precision: str, device: str) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        self.device = device
        if self.scaler is not None:
            self.scaler = type(self.scaler)(device)

    def forward_context(self) -> Any:
        """Return an autocast context for the device in mixed precision, or Lightning's context otherwise."""
        if "mixed" not in self.precision:
            return super().forward_context()  # type: ignore[misc]
        torch = import_torch()
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast(self.device, dtype=dtype)


def precision_for_device(lightning_property: property, sharded: Any = None) -> property:
    """Return a property that replaces `lightning_property`, the property `precision` of a strategy class.

    A precision plugin assigned to the property is converted for the accelerator's device, because Lightning
    creates mixed-precision plugins for CUDA if it does not support the accelerator. `sharded` is the class
    that replaces Lightning's `FSDPPrecision`. The assignment raises `IntegrationError` if the device does not
    support the plugin's data type.
    """

    def get_plugin(strategy: Any) -> Any:
        return lightning_property.__get__(strategy)

    def set_plugin(strategy: Any, plugin: Any) -> None:
        uses_own_accelerator = isinstance(strategy.accelerator, AcceleratorMembers)
        if uses_own_accelerator and plugin is not None:
            accelerator = strategy.accelerator.core_accelerator()
            plugin_precision = str(getattr(plugin, "precision", ""))
            _require_supported_precision(accelerator, plugin_precision)
            plugin = _plugin_for_device(accelerator.device().type, plugin, sharded)
        lightning_property.__set__(strategy, plugin)

    return property(get_plugin, set_plugin)


def _plugin_for_device(device_type: str, plugin: Any, sharded: Any) -> Any:
    """Return a precision plugin like `plugin` for `device_type`, or `plugin` itself if it fits already.

    `sharded` is the class that replaces Lightning's `FSDPPrecision`, or `None`.
    """
    if sharded is not None:
        # The class `sharded` is derived from a mixin and from Lightning's class.
        _sharded, _mixin, lightning_class, *_ = sharded.__mro__
        if type(plugin) is lightning_class:
            return sharded(plugin.precision, device_type)
    plugin_device = getattr(plugin, "device", None)
    is_for_other_device = (
        isinstance(plugin_device, str) and plugin_device != device_type
    )
    if not is_for_other_device:
        return plugin
    plugin_class = type(plugin)
    return plugin_class(plugin.precision, device_type)


def _require_supported_precision(accelerator: Accelerator, precision: str) -> None:
    """Raise `IntegrationError` if the device does not support the data type of `precision`.

    `precision` is a value of Lightning's argument, such as "bf16-mixed".
    """
    number_format, _, _ = precision.partition("-")
    if number_format not in ("16", "bf16", "64") or _is_cpu(accelerator):
        return
    is_supported = {
        "16": accelerator.is_fp16_supported(),
        "bf16": accelerator.is_bf16_supported(),
        "64": accelerator.is_fp64_supported(),
    }
    if is_supported[number_format]:
        return
    alternatives = []
    for name in ("16", "bf16"):
        if is_supported[name]:
            alternatives.append(f"'{name}-mixed'")
    alternatives.append("'32-true'")
    raise IntegrationError(
        f"precision={precision!r}: {accelerator.name} does not support this number format. Next step: use "
        f"{' or '.join(alternatives)}."
    )


def _start_process_group(strategy: Any) -> None:
    """Start the process group with the accelerator's communication backend, unless a group exists.

    Lightning would bind the group to the device, which needs a communication backend in C++. A vendor's
    backend may be in Python. On CUDA, where NCCL benefits from the binding, and on the CPU, Lightning starts
    the group.
    """
    distributed = import_torch().distributed
    can_lightning_start_it = strategy.root_device.type in ("cpu", "cuda")
    if can_lightning_start_it or distributed.is_initialized():
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
    """Return the name of the communication backend for a strategy's process group.

    The name is taken from the strategy, otherwise from `accel run`, and otherwise from the accelerator.
    """
    return communication_of(
        strategy.accelerator.core_accelerator(), strategy.process_group_backend
    )
