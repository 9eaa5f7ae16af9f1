"""Whose word a verdict is: besides the plugin's distribution, those of the vendor's packages behind it."""

from __future__ import annotations

from functools import cache

from accel_core.detection.records import Verdict
from accel_core.machine.vendor_package import VendorPackage, vendor_package

__all__ = ["described", "vendor_packages"]

#: Most backends share torch, and a command lives for one answer.
_known = cache(vendor_package)


def described(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON can hold it, with the vendor's packages as they are installed."""
    packages = [
        {"module": package.module, "distribution": package.distribution, "version": package.version}
        for package in vendor_packages(verdict)
    ]
    return {**verdict.to_dict(), "vendor_packages": packages}


def vendor_packages(verdict: Verdict) -> list[VendorPackage]:
    """What is installed of what brings the device into torch, read from metadata; nothing is imported.

    Of a single module, and of what no distribution has brought, nothing is known.
    """
    found = map(_known, verdict.vendor_import)
    return [package for package in found if package is not None and package.distribution]
