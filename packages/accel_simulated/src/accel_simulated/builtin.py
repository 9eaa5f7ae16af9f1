"""Simulate device types for which torch has a module: load the device, and replace torch's C functions.

After `install`, `import torch` provides the unchanged module `torch.xpu`, `torch.cuda` or `torch.mps`, which
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
    """Patch torch's modules when they are imported, so that torch has the device type `name`.

    Call `install` before torch is imported, because torch looks for its devices once. The device itself is
        loaded with `torch._C`, the first of torch's modules.
    """
    # The CPU wheel can create storages on xpu.
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
        imports.on_import("torch.utils._triton", after=_hide_triton)
    imports.on_import(
        "torch._C",
        before=lambda: device.load(name),
        after=lambda module: _patch_c(module, name),
    )
    if VENDORS[name].collective:
        imports.on_import(
            "torch.distributed.distributed_c10d",
            after=lambda module: _add_process_group(module, name),
        )


def _patch_c(module: ModuleType, name: str) -> None:
    """Replace and add functions in `torch._C`, the argument `module`."""
    setattr(module, f"_has_{name}", True)
    device.library.sim_named()
    if name == "mps":
        # The CPU wheel has the other C functions of torch.mps, which call the device's hooks.
        module._mps_get_name = device.name  # type: ignore[attr-defined]
        module._mps_get_core_count = lambda: 1  # type: ignore[attr-defined]
    else:
        from accel_simulated import stand_ins

        stand_ins.install(module, name)
    if name != "cuda":
        for function, refusal in data_parallel.refusals(name).items():
            setattr(module, function, refusal)


def _add_process_group(module: ModuleType, name: str) -> None:
    """Add the vendor's process group to `torch.distributed.distributed_c10d`, the argument `module`."""
    from accel_simulated import collective

    title = VENDORS[name].collective.upper()
    setattr(module, f"_{title}_AVAILABLE", True)
    setattr(module, f"ProcessGroup{title}", collective.stand_in_for(title.lower()))
    module.__all__.append(f"ProcessGroup{title}")  # torch.distributed has it, too
    module.default_pg_nccl_timeout = timedelta(minutes=10)  # type: ignore[attr-defined]
    # torch logs it with TORCH_DISTRIBUTED_DEBUG=DETAIL; only builds with NCCL have it.
    c10d = sys.modules["torch._C._distributed_c10d"]
    vars(c10d).setdefault("_hash_tensors", collective.hash_tensors)


def _replace_nvml(module: ModuleType) -> None:
    """Make `torch.cuda` count devices as NVML does; klxpu is left out because it has no NVML.

    With NVML, changes of the visible-devices variable take effect until the runtime starts.
    """
    request = current_request()
    if request is not None and request.vendor.name == "cuda":
        module._raw_device_count_nvml = device.present_count  # type: ignore[attr-defined]


def _disable_triton_kernels(module: ModuleType) -> None:
    """Keep torch from using Triton kernels for eager operators, because they need the CUDA driver."""
    module.check_native_jit_disabled = lambda: True  # type: ignore[attr-defined]


def _hide_triton(module: ModuleType) -> None:
    """Make torch report that Triton is unavailable, because Triton needs the vendor's driver."""
    module.has_triton = lambda: False  # type: ignore[attr-defined]


def _support_storages(module: ModuleType, name: str) -> None:
    """Make `torch.UntypedStorage` work on the device type; the CPU wheel supports the CPU only.

    `torch.load` creates storages on the device of `map_location`. FSDP resizes them to 0 to free memory.
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
        tensor = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        torch.ops.accel_simulated.resize_storage(tensor, size)
        return self

    storage_class.__new__, storage_class.resize_ = new, resize
