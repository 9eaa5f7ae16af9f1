"""`KLXPUAccelerator`: what differs on a torch.cuda with Kunlunxin XPUs behind it from any other module."""

from __future__ import annotations

import os
from typing import Any

from accel_core import TorchAccelerator

__all__ = ["KLXPUAccelerator"]


class KLXPUAccelerator(TorchAccelerator):
    """Kunlunxin XPUs, which torch_xmlir puts behind torch.cuda.

    torch.cuda's own functions run, over a CUDA runtime of Kunlunxin's. What they say of the hardware is the
    runtime's invention: a name of "GPU", capability (8, 6). Nothing here is decided by it: Triton, NVTX and
    kernels that are chosen by capability are CUDA's, and answered as for any device without them.
    """

    def use_host_timers(self) -> bool:
        """True, unless `XPU_EVENT_KL3_ENABLE=1`: without it events measure 0.0 milliseconds.

        DeepSpeed's rule (0.19.8). The variable is not set for you: with it, users report collectives that
        never end.
        """
        return os.environ.get("XPU_EVENT_KL3_ENABLE", "0") != "1"

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock host memory with `cudaHostRegister`; False without a device.

        Raises torch's `CudaError`, a `RuntimeError`, where the runtime refuses.
        """
        if not self.is_available():
            return False
        self._check(self.device_module.cudart().cudaHostRegister(address, num_bytes, 0))
        return True

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`. Raises `CudaError` for memory that is not registered."""
        if self.is_available():
            self._check(self.device_module.cudart().cudaHostUnregister(address))

    def _check(self, status: Any) -> None:
        self.device_module.check_error(int(status))
