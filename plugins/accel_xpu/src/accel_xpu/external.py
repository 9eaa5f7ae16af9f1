"""The backend `xpu.external`: Intel Extension for DeepSpeed beside IPEX.

Its own accelerator class lacks most of today's interface, and importing it imports DeepSpeed, which asks
for the accelerator that is being chosen. So it is not imported here: IPEX brings the device, and of the
extension its operator builders are used, when one is asked for.
"""

from __future__ import annotations

from dataclasses import replace

from accel_core import Backend, hookimpl
from accel_xpu import IPEX, accel_probe

__all__ = ["EXTERNAL", "accel_probe"]

EXTERNAL = replace(
    IPEX,
    name="xpu.external",
    priority=900,
    accelerator="accel_xpu.accelerator:ExternalXPUAccelerator",
    description="Intel GPUs, with Intel Extension for DeepSpeed",
    url="https://github.com/intel/intel-extension-for-deepspeed",
    install_hint="pip install intel-extension-for-deepspeed, and IPEX's build for your torch",
    requires=(*IPEX.requires, "intel-extension-for-deepspeed"),
)


@hookimpl
def accel_backends() -> Backend:
    """The one backend of this entry point."""
    return EXTERNAL
