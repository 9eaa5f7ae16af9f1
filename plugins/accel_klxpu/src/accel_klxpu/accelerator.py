"""`KLXPUAccelerator`: what differs on a torch.cuda with Kunlunxin XPUs behind it from
any other module.
"""

from __future__ import annotations

import os

from accel_core import TorchAccelerator

__all__ = ["KLXPUAccelerator"]


class KLXPUAccelerator(TorchAccelerator):
    """Kunlunxin XPUs, which torch_xmlir puts behind torch.cuda.

    torch.cuda's own functions run on Kunlunxin's implementation of the CUDA runtime.
    What they report of the hardware is made up: the name "GPU", capability (8, 6). So
    nothing here depends on it: Triton, NVTX and kernels that are chosen by capability
    need real CUDA, and count as unsupported.
    """

    def use_host_timers(self) -> bool:
        """Return True unless `XPU_EVENT_KL3_ENABLE=1` is set: without it, events
        measure 0.0 milliseconds.

        The rule is DeepSpeed's (0.19.8). This plugin leaves the variable unset: with
        it, users report collectives that never end.
        """
        return os.environ.get("XPU_EVENT_KL3_ENABLE", "0") != "1"
