"""Simulate device types for which torch has its own module, by loading the device and replacing C functions.

After `install`, `import torch` provides the unmodified module `torch.xpu`, `torch.cuda` or `torch.mps`, which
then runs on the simulated device.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

from accel_simulated import data_parallel, device, imports, sending
from accel_simulated.request import current_request
from accel_simulated.vendors import VENDORS

__all__ = ["install"]


def install(name: str) -> None:
    """Arrange for torch to be patched on import, so that it supports the device type `name`.

    Call this function before torch is imported, because torch searches for devices only once. The simulated
    device's library is loaded just before `torch._C`.
    """
    # torch's CPU wheel can create storages on xpu, but not on the other device types.
    if name != "xpu":
        imports.on_import(
            "torch.storage", after=lambda module: _support_storages(module, name)
        )
    imports.on_import(
        "torch.storage",
        after=lambda module: sending.forbid_sharing(module.UntypedStorage, name),
    )
    if name == "cuda":
        imports.on_import("torch.cuda", after=_replace_nvml)
        imports.on_import("torch._native.common_utils", after=_disable_triton_kernels)
    if name in ("cuda", "xpu"):
        imports.on_import("torch.utils._triton", after=_report_triton_missing)
    imports.on_import(
        "torch._C",
        before=lambda: device.load(name),
        after=lambda module: _patch_torch_c(module, name),
    )
    if VENDORS[name].collective:
        imports.on_import(
            "torch.distributed.distributed_c10d",
            after=lambda module: _add_process_group(module, name),
        )


def _patch_torch_c(module: ModuleType, name: str) -> None:
    """Add the C functions for the device type `name` to `module`, which is `torch._C`."""
    setattr(module, f"_has_{name}", True)
    # The library registers its graphs, which needs the device type's name in torch.
    device.library.sim_named()
    if name == "mps":
        # torch's CPU wheel contains the other C functions of torch.mps, which call the device's hooks.
        module._mps_get_name = device.name  # type: ignore[attr-defined]
        module._mps_get_core_count = lambda: 1  # type: ignore[attr-defined]
    else:
        from accel_simulated import torch_c_functions

        torch_c_functions.install(module, name)
    if name != "cuda":
        unsupported = data_parallel.unsupported_functions(name)
        for function_name, function in unsupported.items():
            setattr(module, function_name, function)


def _add_process_group(module: ModuleType, name: str) -> None:
    """Add the vendor's process group class to `module`, which is `torch.distributed.distributed_c10d`."""
    from accel_simulated import collective

    backend = VENDORS[name].collective
    class_name = f"ProcessGroup{backend.upper()}"
    setattr(module, f"_{backend.upper()}_AVAILABLE", True)
    setattr(module, class_name, collective.make_process_group_class(backend))
    module.__all__.append(class_name)  # for torch.distributed, which imports all names
    module.default_pg_nccl_timeout = timedelta(minutes=10)  # type: ignore[attr-defined]
    # torch calls `_hash_tensors` if TORCH_DISTRIBUTED_DEBUG=DETAIL, but only builds with NCCL contain it.
    c10d = sys.modules["torch._C._distributed_c10d"]
    vars(c10d).setdefault("_hash_tensors", collective.hash_tensors)


def _replace_nvml(module: ModuleType) -> None:
    """Make `torch.cuda` count devices as if NVML were installed, except on klxpu, which has no NVML.

    torch then counts the devices without starting the runtime, so the visible-devices variable can still
    change until the runtime starts.
    """
    request = current_request()
    # klxpu also runs in torch.cuda, but has no NVML.
    if request is not None and request.vendor.name == "cuda":
        module._raw_device_count_nvml = device.present_device_count  # type: ignore[attr-defined]


def _disable_triton_kernels(module: ModuleType) -> None:
    """Make torch run eager operators without the Triton kernels, which need the CUDA driver."""
    module.check_native_jit_disabled = lambda: True  # type: ignore[attr-defined]


def _report_triton_missing(module: ModuleType) -> None:
    """Make torch report that Triton is unavailable, because Triton needs the vendor's driver."""
    module.has_triton = lambda: False  # type: ignore[attr-defined]


def _support_storages(module: ModuleType, name: str) -> None:
    """Make `torch.UntypedStorage` support the device type `name`, as the CPU build supports only the CPU.

    `torch.load` creates storages on the device in `map_location`, and FSDP resizes storages to 0 to free
    memory.
    """
    storage_class: Any = module.UntypedStorage
    original_new, original_resize = storage_class.__new__, storage_class.resize_

    def new(cls: type, *arguments: Any, **options: Any) -> Any:
        import torch

        device = options.get("device")
        is_on_device = device is not None and torch.device(device).type == name
        if cls is not storage_class or not is_on_device:
            return original_new(cls, *arguments, **options)
        tensor = torch.empty(*arguments, dtype=torch.uint8, device=device)
        return tensor.untyped_storage()

    def resize(self: Any, size: int) -> Any:
        import torch

        if self.device.type != name:
            return original_resize(self, size)
        # The operator needs a tensor that uses this storage.
        tensor = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        torch.ops.accel_simulated.resize_storage(tensor, size)
        return self

    storage_class.__new__, storage_class.resize_ = new, resize
