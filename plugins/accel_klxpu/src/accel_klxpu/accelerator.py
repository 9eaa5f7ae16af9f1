"""`KLXPUAccelerator`: the members that differ if torch.cuda runs on Kunlunxin XPUs."""

from __future__ import annotations

import os

from accel_core import TorchAccelerator

__all__ = ["KLXPUAccelerator"]


class KLXPUAccelerator(TorchAccelerator):
    """The accelerator for Kunlunxin XPUs, which torch_xmlir makes available as torch.cuda.

    torch.cuda's functions run on Kunlunxin's implementation of the CUDA runtime. They
    report invented hardware: the name "GPU" and the compute capability (8, 6). This
    class ignores both, and reports that Triton, NVTX and kernels for a certain compute
    capability are not supported.
    """

    def use_host_timers(self) -> bool:
        """Return True unless `XPU_EVENT_KL3_ENABLE=1` is set.

        Without that setting, the time between two events is always 0.0. The rule is
        from DeepSpeed (0.19.8). This plugin does not set the variable, because users
        report that collectives hang with it.
        """
        return os.environ.get("XPU_EVENT_KL3_ENABLE", "0") != "1"
