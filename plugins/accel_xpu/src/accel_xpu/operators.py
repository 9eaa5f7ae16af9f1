"""How the builders of Intel Extension for DeepSpeed are asked."""

from __future__ import annotations

import shutil
from typing import Any

from accel_core import OpProvider

__all__ = ["Extension"]


class Extension(OpProvider):
    """The operators of Intel Extension for DeepSpeed: SYCL code that is compiled at
    first use.
    """

    def compatibility(self, builder: Any) -> str:
        """Return why a builder cannot be used; without the SYCL compiler icpx none can,
        whatever it says itself.
        """
        if shutil.which("icpx") is None:
            return "it has to be compiled, and there is no SYCL compiler icpx: source oneAPI's setvars.sh"
        return super().compatibility(builder)
