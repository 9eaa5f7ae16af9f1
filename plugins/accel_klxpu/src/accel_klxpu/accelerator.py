"""`KLXPUAccelerator`: what differs on a torch.cuda with Kunlunxin XPUs behind it from any other module."""

from __future__ import annotations

import os

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
