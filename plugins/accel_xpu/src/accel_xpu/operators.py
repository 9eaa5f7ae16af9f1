"""The operator builders of Intel Extension for DeepSpeed."""

from __future__ import annotations

import shutil
from typing import Any

from accel_core import OpProvider

__all__ = ["Extension"]


class Extension(OpProvider):
    """The operators of Intel Extension for DeepSpeed, which are compiled from SYCL at
    first use.
    """

    def compatibility(self, builder: Any) -> str:
        """Return the reason why a builder cannot be used, as one sentence; empty if it
        can be used.

        Without the SYCL compiler icpx, no builder can be used, whatever the builder
        reports.
        """
        if shutil.which("icpx") is None:
            return "the SYCL compiler icpx is missing: source oneAPI's setvars.sh"
        return super().compatibility(builder)
