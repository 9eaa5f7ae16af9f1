"""The members that torch.xpu needs to override, with and without IPEX."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from accel_core import TorchAccelerator, is_installed

__all__ = ["IPEXAccelerator", "XPUAccelerator"]


class XPUAccelerator(TorchAccelerator):
    """The accelerator for Intel GPUs, through torch itself.

    Counting devices does not start the driver if `pyzes` is installed and
    `ZE_AFFINITY_MASK` contains whole numbers only. A process may then count, fork, and
    use the device in its child.
    """

    # Every Intel GPU computes in float16.
    _has_fp16_on_every_device = True

    def communication_backend_name(self) -> str:
        """Return `"xccl"`, or `"ccl"` if torch lacks xccl but oneCCL's bindings exist.

        The bindings are imported, which registers `ccl` with torch.distributed. If
        neither exists, torch.distributed reports that xccl is missing.
        """
        if not self._has_xccl() and is_installed("oneccl_bindings_for_pytorch"):
            # The import registers the backend `ccl` with torch.distributed.
            import_module("oneccl_bindings_for_pytorch")
            return "ccl"
        return super().communication_backend_name()

    def _has_xccl(self) -> bool:
        distributed = self._torch.distributed
        if not distributed.is_available():
            return False
        if not hasattr(distributed, "is_xccl_available"):
            return False
        return bool(distributed.is_xccl_available())

    def is_fp64_supported(self) -> bool:
        """Return whether the driver reports float64, which Arc cards and most integrated
        GPUs lack.

        Without a device, the result is True.
        """
        if not self.is_available():
            return True
        properties = self._call_if_supported(self.device_module.get_device_properties)
        if properties is None:
            return False
        # A torch that does not report `has_fp64` is assumed to support float64.
        return bool(getattr(properties, "has_fp64", True))

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Triton is installed.

        torch's XPU build installs its own build of Triton.
        """
        return is_installed("triton") and self.is_available()


class IPEXAccelerator(XPUAccelerator):
    """The accelerator for Intel GPUs, through Intel Extension for PyTorch (IPEX)."""

    def build_extension(self) -> type[Any]:
        """Return IPEX's setuptools command `build_ext`, which compiles SYCL code."""
        ipex = import_module("intel_extension_for_pytorch.xpu")
        command: type[Any] = ipex.DpcppBuildExtension
        return command
