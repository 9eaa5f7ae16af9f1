"""`CUDAAccelerator`: the members that torch.cuda needs to override."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel_core import (
    Backend,
    DeviceProperties,
    SettingError,
    TorchAccelerator,
    is_installed,
)

if TYPE_CHECKING:
    from torch.types import Device

__all__ = ["CUDAAccelerator"]

#: AMD's architectures with 8-bit floating point units: MI300, MI350, RDNA 4.
_HIP_FP8 = ("gfx94", "gfx95", "gfx12")


class CUDAAccelerator(TorchAccelerator):
    """NVIDIA GPUs, or AMD GPUs if torch was built for ROCm.

    Without a device, every `is_*_supported` member returns False. Counting devices does
    not start the driver if NVML (on ROCm: amdsmi) is available. A process may then
    count devices, fork, and use the devices in its child. With MIG UUIDs in
    `CUDA_VISIBLE_DEVICES`, torch starts the driver to count devices.
    """

    _range_module = "nvtx"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._rocm = "hip" in backend.torch_integration.builds
        #: NVTX domains need NVIDIA's `nvtx` package: torch.cuda.nvtx has none.
        self.supports_nvtx_domain = is_installed("nvtx")

    # Devices

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return torch's properties, with the UUID in the form of `nvidia-smi -L` and
        `CUDA_VISIBLE_DEVICES`: `"GPU-…"` or `"MIG-…"`.
        """
        if device is not None:
            device_index = self._device_argument(device_index, device)
        properties = super().device_properties(device_index)
        if properties.uuid is None:
            return properties
        if self._rocm:
            return replace(properties, uuid=f"GPU-{_rocm_serial(properties.uuid)}")
        prefix = "MIG" if " MIG " in properties.name else "GPU"
        return replace(properties, uuid=f"{prefix}-{properties.uuid}")

    def _capability(self) -> tuple[int, int]:
        """Return the compute capability `(major, minor)` of the current device; `(0,
        0)` without a device, or if the driver does not report it.
        """
        if not self.is_available():
            return (0, 0)
        capability = self._call_if_supported(self.device_module.get_device_capability)
        return capability or (0, 0)

    # Data types

    def is_fp16_supported(self) -> bool:
        """Return whether the compute capability is at least 7.

        With `DS_ALLOW_DEPRECATED_FP16=1`, a compute capability of 6 is enough, although
        float16 is slow on such a GPU. Raises `SettingError` if the variable's value is
        not valid.
        """
        major, _ = self._capability()
        return major >= 7 or (major == 6 and _allows_deprecated_fp16())

    def is_fp8_supported(self) -> bool:
        """Return whether the compute capability is at least 8.9 (Ada, Hopper). On ROCm,
        return whether the GPU is an MI300, an MI350 or RDNA 4.
        """
        if self._rocm and self.is_available():
            properties = self._call_if_supported(
                self.device_module.get_device_properties
            )
            return str(getattr(properties, "gcnArchName", "")).startswith(_HIP_FP8)
        return self._capability() >= (8, 9)

    # Graphs

    def is_current_stream_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        # torch.cuda's function is a dummy in CPU builds, and nothing is captured before
        # CUDA starts.
        return self.is_initialized() and super().is_current_stream_capturing()

    # Compilation and profiling

    def is_triton_supported(self) -> bool:
        """Return whether Triton is installed and the compute capability is at least 8."""
        return is_installed("triton") and self._capability() >= (8, 0)

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton kernel is faster than `torch._grouped_mm`. This is
        True for compute capability 7 and 8.

        The rule is from DeepSpeed (0.19.8): torch has a fused grouped kernel for Hopper
        (9.0) and newer GPUs, and loops over the groups on older GPUs. A torch without
        `_grouped_mm` loops on every GPU. The result is False on AMD, for which there is
        no measurement.
        """
        if self._rocm or not is_installed("triton"):
            return False
        major, _ = self._capability()
        return major >= 7 and (major < 9 or not hasattr(self._torch, "_grouped_mm"))

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open an NVTX range. Errors are suppressed.

        `domain` and `category` need the package `nvtx`. Without the package, the range
        is in NVTX's default domain.
        """
        if domain is None or not self.supports_nvtx_domain:
            super().range_push(msg)
            return
        with suppress(Exception):
            nvtx = import_module("nvtx")
            nvtx.push_range(str(msg), domain=domain, category=category)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the NVTX range that this thread opened last in `domain`. Errors are
        suppressed.
        """
        if domain is None or not self.supports_nvtx_domain:
            super().range_pop()
            return
        with suppress(Exception):
            import_module("nvtx").pop_range(domain=domain)

    # Launching

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of NCCL (RCCL on ROCm), such as `(2, 27, 3)`; `None` if
        torch was built without it.
        """
        try:
            version: tuple[Any, ...] = import_module("torch.cuda.nccl").version()
        except (AttributeError, ImportError):
            return None
        return tuple(int(part) for part in version[:3])


def _rocm_serial(uuid: str) -> str:
    """Return AMD's serial number, which HIP encodes as the bytes of the UUID: each byte
    is one of its 16 characters.
    """
    try:
        serial = bytes.fromhex(uuid.replace("-", "")).decode("ascii")
    except ValueError:
        return uuid
    return serial if serial.isalnum() else uuid


def _allows_deprecated_fp16() -> bool:
    """Return whether `DS_ALLOW_DEPRECATED_FP16` is on. Raises `SettingError` if its value
    is not valid.
    """
    value = os.environ.get("DS_ALLOW_DEPRECATED_FP16", "").strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("", "0", "false", "no", "off"):
        return False
    raise SettingError(
        f"DS_ALLOW_DEPRECATED_FP16={value!r} is not valid, expected 1 or 0. Correct it, "
        "or unset DS_ALLOW_DEPRECATED_FP16."
    )
