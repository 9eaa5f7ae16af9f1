"""`KLXPUAccelerator`: the members that differ if torch.cuda runs on Kunlunxin XPUs."""

from __future__ import annotations

import os

from accel_core import TorchAccelerator

__all__ = ["KLXPUAccelerator"]


class KLXPUAccelerator(TorchAccelerator):
    """Kunlunxin XPUs, which torch_xmlir puts behind torch.cuda.

    torch.cuda's functions run on Kunlunxin's implementation of the CUDA runtime. They
    report invented hardware: the name "GPU" and compute capability (8, 6). This class
    therefore ignores both, and reports Triton, NVTX and kernels selected by capability
    as unsupported.
    """

    def use_host_timers(self) -> bool:
        """Return True unless `XPU_EVENT_KL3_ENABLE=1` is set. Without that setting,
        events measure 0.0 milliseconds.

        The rule is from DeepSpeed (0.19.8). This plugin does not set the variable,
        because users report that collectives hang with it.
        """
        return os.environ.get("XPU_EVENT_KL3_ENABLE", "0") != "1"
