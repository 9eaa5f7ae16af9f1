"""`NPUAccelerator`: the members that torch.npu needs to override."""

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


class NPUAccelerator(TorchAccelerator):
    """Huawei Ascend NPUs.

    Counting devices does not start CANN if the driver's `libascend_hal.so` loads. A
    process may then count devices, fork, and use the devices in its child.
    (`torch.npu.is_available` would start CANN.)

    If a device was never selected, torch_npu's functions for its streams, properties
    and memory raise an error or report the current device. These members therefore
    select the device first.
    """

    # Every Ascend NPU computes in float16.
    _has_fp16_on_every_device = True

    supports_nvtx_domain = True

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return this thread's current stream on the device."""
        if device is not None:
            device_index = self._device_argument(device_index, device)
        with self.device_guard(device_index):
            return super().current_stream(device_index)

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the device's default stream."""
        if device is not None:
            device_index = self._device_argument(device_index, device)
        with self.device_guard(device_index):
            return super().default_stream(device_index)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return torch_npu's properties. `capability` is `None`, because Ascend has no
        compute capability.
        """
        index = self._index(device_index, device)
        with self.device_guard(index):
            return super().device_properties(index)

    def mem_get_info(
        self, device_index: Device = None, device: Device = None
    ) -> tuple[int, int]:
        """Return `(free, total)` bytes of the device."""
        index = self._index(device_index, device)
        with self.device_guard(index):
            return super().mem_get_info(index)

    def total_memory(self, device_index: Device = None, device: Device = None) -> int:
        """Return the device's memory in bytes."""
        index = self._index(device_index, device)
        with self.device_guard(index):
            return super().total_memory(index)

    def toolkit(self) -> dict[str, str | None]:
        """Return CANN's version and CANN's folder, under the keys `"CANN"` and
        `"ASCEND_HOME_PATH"`.

        The version comes from the runtime, or otherwise from CANN's files. A value is
        `None` if it is unknown.
        """
        return {
            "CANN": self._cann_version("CANN") or cann_version(),
            "ASCEND_HOME_PATH": os.environ.get("ASCEND_HOME_PATH"),
        }

    def _cann_version(self, part: str) -> str:
        with suppress(Exception):  # older releases of torch_npu lack the function
            return str(self.device_module.utils.get_cann_version(part))
        return ""

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Pin host memory; return False without a device, or if CANN rejects the address."""
        # 2 is ACL_HOST_REG_MAPPED, the only kind of pinned memory for which the copy
        # engine is fast.
        runtime = self._runtime()
        if runtime is None:
            return False
        return bool(runtime.npuHostRegister(address, num_bytes, 2) == 0)

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`. Raises `RuntimeError` for memory that is not
        registered.
        """
        runtime = self._runtime()
        code = runtime.npuHostUnregister(address) if runtime else 0
        if code:
            raise RuntimeError(
                f"{self.name}: host memory at {address:#x} cannot be unpinned: error {code}"
            )

    def _runtime(self) -> Any:
        """Return CANN's runtime; `None` without a device, or if torch_npu does not export
        it.
        """
        if self.is_available() and hasattr(self.device_module, "npurt"):
            return self.device_module.npurt()
        return None

    def pin_memory_alignment(self) -> int:
        """Return 4096, in bytes, because CANN registers only addresses that are
        multiples of 4096.
        """
        return 4096

    def is_fp64_supported(self) -> bool:
        """Return False: torch_npu (2.13.0) creates a float32 tensor instead of a
        float64 tensor, with a warning.

        The warning of `.double()` is "Device do not support double dtype now, dtype
        cast replace with float".
        """
        return False

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open an mstx range, for Huawei's profiler; `category` is ignored. Errors are
        suppressed.
        """
        with suppress(Exception):
            self.device_module.mstx.range_push(str(msg), domain=domain or "default")

    def range_pop(self, domain: str | None = None) -> None:
        """Close the mstx range that was opened last in `domain`. Errors are suppressed."""
        with suppress(Exception):
            self.device_module.mstx.range_pop(domain=domain or "default")

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of HCCL, which is CANN's version, such as `(8, 3)` for
        `8.3.RC1`; `None` if CANN does not report it.
        """
        numbers = re.match(r"\d+(\.\d+)*", self._cann_version("HCCL"))
        if numbers is None:
            return None
        return tuple(int(number) for number in numbers[0].split("."))
