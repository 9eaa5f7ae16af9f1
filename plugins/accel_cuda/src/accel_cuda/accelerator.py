"""`CUDAAccelerator`: the members to override for torch.cuda."""

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
_FP8_ARCHITECTURES_OF_AMD = ("gfx94", "gfx95", "gfx12")


class CUDAAccelerator(TorchAccelerator):
    """The accelerator for NVIDIA GPUs, and for AMD GPUs if torch was built for ROCm.

    Without a device, every `is_*_supported` member returns False. Counting devices does
    not start the driver if NVML (on ROCm: amdsmi) is available. A process may then
    count devices, fork, and use the devices in its child. With MIG UUIDs in
    `CUDA_VISIBLE_DEVICES`, torch starts the driver to count devices.
    """

    _range_module = "nvtx"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._is_rocm = "hip" in backend.torch_integration.builds
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
            device_index = self._merge_device_arguments(device_index, device)
        properties = super().device_properties(device_index)
        if properties.uuid is None:
            return properties
        if self._is_rocm:
            return replace(properties, uuid=f"GPU-{_decode_amd_uuid(properties.uuid)}")
        is_mig_instance = " MIG " in properties.name
        prefix = "MIG" if is_mig_instance else "GPU"
        return replace(properties, uuid=f"{prefix}-{properties.uuid}")

    def _compute_capability(self) -> tuple[int, int]:
        """Return the compute capability `(major, minor)` of the current device.

        Without a device, or if the driver does not report the capability, the result is
        `(0, 0)`.
        """
        unknown = (0, 0)
        if not self.is_available():
            return unknown
        capability = self._call_if_supported(self.device_module.get_device_capability)
        return capability or unknown

    # Data types

    def is_fp16_supported(self) -> bool:
        """Return whether the compute capability is at least 7.

        With `DS_ALLOW_DEPRECATED_FP16=1`, a compute capability of 6 is enough, although
        float16 is slow on such a GPU. Raises `SettingError` if the variable's value is
        not valid.
        """
        major, _ = self._compute_capability()
        return major >= 7 or (major == 6 and _allows_deprecated_fp16())

    def is_fp8_supported(self) -> bool:
        """Return whether the GPU has 8-bit floating point units.

        These are NVIDIA GPUs with a compute capability of at least 8.9 (Ada, Hopper),
        and AMD's MI300, MI350 and RDNA 4.
        """
        if self._is_rocm and self.is_available():
            properties = self._call_if_supported(
                self.device_module.get_device_properties
            )
            architecture = str(getattr(properties, "gcnArchName", ""))
            return architecture.startswith(_FP8_ARCHITECTURES_OF_AMD)
        return self._compute_capability() >= (8, 9)  # Ada, Hopper and newer

    # Graphs

    def is_current_stream_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        # torch.cuda's function is a dummy in CPU builds, and nothing is captured before
        # CUDA starts.
        return self.is_initialized() and super().is_current_stream_capturing()

    # Compilation and profiling

    def is_triton_supported(self) -> bool:
        """Return whether Triton is installed and the compute capability is at least 8."""
        is_ampere_or_newer = self._compute_capability() >= (8, 0)
        return is_installed("triton") and is_ampere_or_newer

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton kernel is faster than `torch._grouped_mm`.

        The result is True for the compute capabilities 7 and 8. The rule is from
        DeepSpeed (0.19.8): torch has a fused grouped kernel for Hopper (9.0) and newer
        GPUs, and loops over the groups on older GPUs. A torch without `_grouped_mm`
        loops on every GPU. The result is False on AMD, for which there is no
        measurement.
        """
        if self._is_rocm or not is_installed("triton"):
            return False
        major, _ = self._compute_capability()
        # torch's fused kernel needs Hopper (9.0) or newer.
        has_fused_kernel = major >= 9 and hasattr(self._torch, "_grouped_mm")
        return major >= 7 and not has_fused_kernel

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open an NVTX range. Errors are suppressed.

        `domain` and `category` require the package `nvtx`. Without the package, the
        range is in NVTX's default domain.
        """
        if domain is None or not self.supports_nvtx_domain:
            super().range_push(msg)
            return
        with suppress(Exception):  # a problem of the profiler must not stop the program
            nvtx = import_module("nvtx")
            nvtx.push_range(str(msg), domain=domain, category=category)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the NVTX range that this thread opened last in `domain`. Errors are
        suppressed.
        """
        if domain is None or not self.supports_nvtx_domain:
            super().range_pop()
            return
        with suppress(Exception):  # a problem of the profiler must not stop the program
            import_module("nvtx").pop_range(domain=domain)

    # Launching

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of NCCL, such as `(2, 27, 3)`, or of RCCL on ROCm.

        The result is `None` if torch was built without NCCL and RCCL.
        """
        try:
            version: tuple[Any, ...] = import_module("torch.cuda.nccl").version()
        except (AttributeError, ImportError):
            return None
        # A suffix may follow the three numbers.
        return tuple(int(part) for part in version[:3])


def _decode_amd_uuid(uuid: str) -> str:
    """Return the serial number in an AMD GPU's UUID. Other UUIDs are returned unchanged.

    HIP encodes the 16 characters of the serial number as the 16 bytes of the UUID.
    """
    try:
        serial_number = bytes.fromhex(uuid.replace("-", "")).decode("ascii")
    except ValueError:
        return uuid
    if not serial_number.isalnum():
        return uuid
    return serial_number


def _allows_deprecated_fp16() -> bool:
    """Return whether `DS_ALLOW_DEPRECATED_FP16` is switched on.

    Raises `SettingError` if the variable's value is not valid.
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
