"""The members that torch.xpu needs to override, with and without IPEX."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from accel_core import TorchAccelerator, is_installed

__all__ = ["IPEXAccelerator", "XPUAccelerator"]


class XPUAccelerator(TorchAccelerator):
    """Intel GPUs through torch itself.

    Counting devices does not start the driver if `pyzes` is installed and
    `ZE_AFFINITY_MASK` contains whole numbers only. A process may then count, fork, and
    use the device in its child.
    """

    # Every Intel GPU computes in float16.
    _has_fp16_on_every_device = True

    def communication_backend_name(self) -> str:
        """Return `"xccl"` if torch contains it. Otherwise import oneCCL's bindings, if
        they are installed, and return `"ccl"`.

        Without either, the result is `"xccl"`, and torch.distributed reports that it is
        missing.
        """
        if not self._has_xccl() and is_installed("oneccl_bindings_for_pytorch"):
            # Registers `ccl` with torch.distributed.
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
        """Return whether the driver reports float64, which Arc cards and most
        integrated GPUs lack; True without a device.
        """
        if not self.is_available():
            return True
        properties = self._call_if_supported(self.device_module.get_device_properties)
        return bool(getattr(properties, "has_fp64", properties is not None))

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Triton is installed.

        torch's XPU build installs its own build of Triton.
        """
        return is_installed("triton") and self.is_available()


class IPEXAccelerator(XPUAccelerator):
    """Intel GPUs through Intel Extension for PyTorch, which adds functions to
    torch.xpu.
    """

    def build_extension(self) -> type[Any]:
        """Return IPEX's setuptools command, which compiles SYCL."""
        builder: type[Any] = import_module(
            "intel_extension_for_pytorch.xpu"
        ).DpcppBuildExtension
        return builder
