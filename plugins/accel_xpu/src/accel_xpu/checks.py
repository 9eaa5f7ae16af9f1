"""Checks of `accel doctor` that read files: Intel's Level Zero driver, which torch
needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from accel_core import Check, CheckResult, TorchBuild, torch_build

__all__ = ["CHECKS", "level_zero_driver"]

_ROOT = Path("/")
#: The names of the driver's library, for current and for older GPUs. Source:
#: intel/compute-runtime, README.md.
_LIBRARY_NAMES = ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1")
#: The folders in which distributions install the library.
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/lib/wsl/lib",
)


def level_zero_driver(
    root: Path = _ROOT,
    build: TorchBuild | None = None,
    environ: Mapping[str, str] | None = None,
) -> CheckResult:
    """Check that the user-space driver for Intel's GPUs is installed.

    With the kernel driver alone, torch finds no GPU. Source: vllm-project/vllm#47578.
    The package is libze-intel-gpu1 in Ubuntu and Debian, and intel-level-zero-gpu in
    Intel's repository.
    """
    build = build or torch_build()
    is_xpu_build = build is not None and bool(build.xpu)
    has_device_node = any((root / "dev/dri").glob("renderD*"))
    if not is_xpu_build or not has_device_node:
        what = "torch is not an XPU build, or there is no GPU device node in /dev/dri"
        return CheckResult("ok", what)
    variables = os.environ if environ is None else environ
    for folder in _search_folders(root, variables):
        for name in _LIBRARY_NAMES:
            library = folder / name
            if library.exists():
                return CheckResult("ok", f"{library} exists")
    return CheckResult(
        "error",
        "libze_intel_gpu.so.1 is missing, so torch finds no Intel GPU",
        "install the package libze-intel-gpu1 (Debian, Ubuntu) or intel-level-zero-gpu",
    )


def _search_folders(root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders below `root` in which the driver's library is looked up."""
    for entry in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if entry:
            yield root / entry.lstrip("/")
    for folder in _LIBRARY_FOLDERS:
        yield root / folder


CHECKS = [
    Check("level-zero-driver", "Intel's Level Zero driver", level_zero_driver),
]
