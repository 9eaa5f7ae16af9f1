"""How the builders of Intel Extension for DeepSpeed are asked."""

from __future__ import annotations

import shutil
from typing import Any

from accel_core import OpProvider

__all__ = ["Extension"]


class Extension(OpProvider):
    """The extension's operators: SYCL, compiled at first use."""

    def compatibility(self, builder: Any) -> str:
        """Its builders say yes on every machine, and nothing of theirs comes compiled."""
        if shutil.which("icpx") is None:
            return "it has to be compiled, and there is no SYCL compiler icpx: source oneAPI's setvars.sh"
        return super().compatibility(builder)
