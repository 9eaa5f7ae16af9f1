"""Whose word a verdict is: besides the plugin's distribution, those of the vendor's packages behind it."""

from __future__ import annotations

from accel_core._support.packages import brought_by
from accel_core.detection import Verdict

__all__ = ["described", "vendor_packages"]


def described(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON can hold it, with the vendor's packages as they are installed."""
    found = ((module, *brought_by(module)) for module in verdict.vendor_import)
    packages = [
        dict(zip(("module", "distribution", "version"), each, strict=True)) for each in found if each[1]
    ]
    return {**verdict.to_dict(), "vendor_packages": packages}


def vendor_packages(verdict: Verdict) -> list[str]:
    """Installed packages that bring the device into torch, from their metadata: `"torch_npu 2.13.0"`."""
    return list(filter(None, (" ".join(brought_by(module)).strip() for module in verdict.vendor_import)))
