"""Simulate device types that torch ships a module for: load the device, and replace torch's C functions.

After `install`, `import torch` gives torch's own unchanged `torch.xpu`, `torch.cuda` or `torch.mps`, running
on the simulated device.
"""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import Any

from accel_simulated import data_parallel, device, imports, sending
from accel_simulated.asked import asked
from accel_simulated.vendors import VENDORS

__all__ = ["install"]


def install(name: str) -> None:
    """Make the device available before torch looks for it, which torch does once."""

    def change_c(module: ModuleType) -> None:
        setattr(module, f"_has_{name}", True)
        device.library.sim_named()
        if (
            name == "mps"
        ):  # the CPU wheel has most of torch.mps's C part, which asks the device's hooks
            module._mps_get_name = device.name  # type: ignore[attr-defined]
            module._mps_get_core_count = lambda: 1  # type: ignore[attr-defined]
        else:
            from accel_simulated import stand_ins

            stand_ins.put_into(module, name)
        if name != "cuda":
            for function, refusal in data_parallel.refusals(name).items():
                setattr(module, function, refusal)

    def change_distributed(module: ModuleType) -> None:
        from accel_simulated import collective

        title = VENDORS[name].collective.upper()
        setattr(module, f"_{title}_AVAILABLE", True)
        setattr(module, f"ProcessGroup{title}", collective.stand_in_for(title.lower()))
        module.default_pg_nccl_timeout = timedelta(minutes=10)  # type: ignore[attr-defined]

    # torch._C comes first of all: torch's Python is built on it.
    if name != "xpu":  # whose storages the CPU wheel can make
        imports.change(
            "torch.storage", after=lambda module: _serve_storages(module, name)
        )
    imports.change(
        "torch.storage",
        after=lambda module: sending.refuse(module.UntypedStorage, name),
    )
    if name == "cuda":
        imports.change("torch.cuda", after=_count_by_nvml)
        imports.change("torch._native.common_utils", after=_write_no_triton)
    if name in ("cuda", "xpu"):
        imports.change("torch.utils._triton", after=_find_no_triton)
    imports.change("torch._C", before=lambda: device.load(name), after=change_c)
    if VENDORS[name].collective:
        imports.change("torch.distributed.distributed_c10d", after=change_distributed)


def _count_by_nvml(module: ModuleType) -> None:
    """NVML counts by the variable as it is now, until the runtime starts. Kunlunxin's torch.cuda has none."""
    if (found := asked()) is not None and found.vendor.name == "cuda":
        module._raw_device_count_nvml = device.present  # type: ignore[attr-defined]


def _write_no_triton(module: ModuleType) -> None:
    """Keep torch from giving eager operators Triton kernels, which need the CUDA driver."""
    module.check_native_jit_disabled = lambda: True  # type: ignore[attr-defined]


def _find_no_triton(module: ModuleType) -> None:
    """Have inductor say that it finds no working Triton, which needs the driver too."""
    module.has_triton = lambda: False  # type: ignore[attr-defined]


def _serve_storages(storage: ModuleType, name: str) -> None:
    """Make and resize `torch.UntypedStorage` on the device: the C part is compiled for the host alone.

    `torch.load` makes them so, with a `map_location`; FSDP frees by resizing to nothing.
    """
    kind: Any = storage.UntypedStorage
    theirs, theirs_resize = kind.__new__, kind.resize_

    def new(cls: type, *arguments: Any, **more: Any) -> Any:
        import torch

        device = more.get("device")
        if cls is not kind or device is None or torch.device(device).type != name:
            return theirs(cls, *arguments, **more)
        return torch.empty(
            *arguments, dtype=torch.uint8, device=device
        ).untyped_storage()

    def resize(self: Any, size: int) -> Any:
        import torch

        if self.device.type != name:
            return theirs_resize(self, size)
        over = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        torch.ops.accel_simulated.resize_storage(over, size)
        return self

    kind.__new__, kind.resize_ = new, resize
