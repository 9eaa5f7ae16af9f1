"""Whose word a verdict is: besides the plugin's distribution, those of the vendor's packages behind it."""

from __future__ import annotations

from functools import cache

from accel_core._support import installed
from accel_core.detection.records import Verdict

__all__ = ["described", "vendor_packages"]


def described(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON can hold it, with the vendor's packages as they are installed."""
    found = ((module, *_brought_by(module)) for module in verdict.vendor_import)
    packages = [
        dict(zip(("module", "distribution", "version"), each, strict=True)) for each in found if each[1]
    ]
    return {**verdict.to_dict(), "vendor_packages": packages}


def vendor_packages(verdict: Verdict) -> list[str]:
    """What is installed of what brings the device into torch, read from metadata: `"torch_npu 2.13.0"`."""
    return list(filter(None, (" ".join(_brought_by(module)).strip() for module in verdict.vendor_import)))


@cache  # most backends share torch, and a command lives for one answer
def _brought_by(module: str) -> tuple[str, str]:
    """The distribution of its name, else the one whose `RECORD` has it, with its version; empty without."""
    from importlib import metadata

    def lists(distribution: metadata.Distribution) -> bool:
        try:
            return f"\n{module.replace('.', '/')}/" in f"\n{distribution.read_text('RECORD')}"
        except (OSError, ValueError):
            return False

    if not installed.package_folders(module):
        return "", ""
    own = metadata.distributions(name=module.partition(".")[0])
    return installed.identity(next(iter(own), None) or next(filter(lists, installed.distributions()), None))
