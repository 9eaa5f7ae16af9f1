"""The operator builders of Intel Extension for DeepSpeed."""

from __future__ import annotations

import shutil
from typing import Any

from accel_core import OpProvider

__all__ = ["DeepSpeedExtensionOps"]


class DeepSpeedExtensionOps(OpProvider):
    """The operators of Intel Extension for DeepSpeed, which are compiled from SYCL code
    on first use.
    """

    def compatibility(self, builder: Any) -> str:
        """Return the reason why an operator builder cannot be used, or an empty string if it can.

        Without the SYCL compiler icpx, no builder can be used, whatever the builder
        reports.
        """
        if shutil.which("icpx") is None:
            return "the SYCL compiler icpx is missing: run `source setvars.sh` from oneAPI's folder"
        return super().compatibility(builder)
