"""`NPUAccelerator`: the members to override for torch.npu."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, TorchAccelerator
from accel_npu import cann_version

if TYPE_CHECKING:
    import torch
    from torch.types import Device

__all__ = ["NPUAccelerator"]

#: Constants of CANN. The copy engine is fast only for pinned memory of this kind.
_ACL_HOST_REG_MAPPED = 2
_ACL_SUCCESS = 0


class NPUAccelerator(TorchAccelerator):
    """The accelerator for Huawei Ascend NPUs.

    Counting devices does not start CANN if the driver's `libascend_hal.so` can be
    loaded. A process may then count devices, fork, and use the devices in its child.
    (`torch.npu.is_available` would start CANN.)

    For a device that was never selected, torch_npu's functions for streams, properties
    and memory raise an error or report the current device. The members for streams,
    properties and memory therefore select the device first.
    """

    # Every Ascend NPU computes in float16.
    _has_fp16_on_every_device = True

    supports_nvtx_domain = True

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return this thread's current stream on the device."""
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        # torch_npu fails or uses the current device if the device was never selected.
        with self.device_guard(device_index):
            return super().current_stream(device_index)

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the device's default stream."""
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        # torch_npu fails or uses the current device if the device was never selected.
        with self.device_guard(device_index):
            return super().default_stream(device_index)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the device's properties as torch_npu reports them.

        `capability` is `None`, because Ascend has no compute capability.
        """
        index = self._index(device_index, device)
        # torch_npu fails or uses the current device if the device was never selected.
        with self.device_guard(index):
            return super().device_properties(index)

    def mem_get_info(
        self, device_index: Device = None, device: Device = None
    ) -> tuple[int, int]:
        """Return the free and the total memory of the device, in bytes."""
        index = self._index(device_index, device)
        # torch_npu fails or uses the current device if the device was never selected.
        with self.device_guard(index):
            return super().mem_get_info(index)

    def total_memory(self, device_index: Device = None, device: Device = None) -> int:
        """Return the total memory of the device, in bytes."""
        index = self._index(device_index, device)
        # torch_npu fails or uses the current device if the device was never selected.
        with self.device_guard(index):
            return super().total_memory(index)

    def toolkit(self) -> dict[str, str | None]:
        """Return a dictionary with CANN's version and folder.

        The keys are `"CANN"` and `"ASCEND_HOME_PATH"`; an unknown value is `None`. The
        version comes from CANN's runtime or from CANN's files.
        """
        return {
            "CANN": self._query_cann_version("CANN") or cann_version(),
            "ASCEND_HOME_PATH": os.environ.get("ASCEND_HOME_PATH"),
        }

    def _query_cann_version(self, component: str) -> str:
        """Return the version of a component of CANN, such as HCCL, or an empty string
        if unknown.
        """
        with suppress(Exception):  # older releases of torch_npu lack the function
            return str(self.device_module.utils.get_cann_version(component))
        return ""

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Pin host memory, and return whether that succeeded.

        The result is False without a device, or if CANN rejects the address.
        """
        runtime = self._cann_runtime()
        if runtime is None:
            return False
        code = runtime.npuHostRegister(address, num_bytes, _ACL_HOST_REG_MAPPED)
        return bool(code == _ACL_SUCCESS)

    def unregister_host_memory(self, address: int) -> None:
        """Unpin host memory that `register_host_memory` pinned.

        Raises `RuntimeError` for memory that is not pinned.
        """
        runtime = self._cann_runtime()
        if not runtime:
            return
        code = runtime.npuHostUnregister(address)
        if code != _ACL_SUCCESS:
            raise RuntimeError(
                f"{self.name}: the host memory at {address:#x} cannot be unpinned: CANN "
                f"returned error {code}"
            )

    def _cann_runtime(self) -> Any:
        """Return torch_npu's object with the functions of CANN's runtime.

        The result is `None` without a device, or if torch_npu does not have the object.
        """
        if self.is_available() and hasattr(self.device_module, "npurt"):
            return self.device_module.npurt()
        return None

    def pin_memory_alignment(self) -> int:
        """Return 4096, in bytes: CANN pins only memory whose address is a multiple of
        this number.
        """
        return 4096

    def is_fp64_supported(self) -> bool:
        """Return False: torch_npu (2.13.0) creates a float32 tensor instead of float64.

        torch_npu then warns "Device do not support double dtype now, dtype cast replace
        with float".
        """
        return False

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open an mstx range for Huawei's profiler. Errors are suppressed.

        `category` is ignored.
        """
        with suppress(Exception):  # a problem of the profiler must not stop the program
            self.device_module.mstx.range_push(str(msg), domain=domain or "default")

    def range_pop(self, domain: str | None = None) -> None:
        """Close the mstx range that was opened last in `domain`. Errors are suppressed."""
        with suppress(Exception):  # a problem of the profiler must not stop the program
            self.device_module.mstx.range_pop(domain=domain or "default")

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of HCCL, which is CANN's version: `(8, 3)` for `8.3.RC1`.

        The result is `None` if CANN does not report the version.
        """
        version = self._query_cann_version("HCCL")
        numeric_part = re.match(r"\d+(\.\d+)*", version)  # `8.3` in `8.3.RC1`
        if numeric_part is None:
            return None
        return tuple(int(number) for number in numeric_part[0].split("."))
