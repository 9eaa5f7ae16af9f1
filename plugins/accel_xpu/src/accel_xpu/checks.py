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
_DRIVERS = ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1")
#: The folders in which distributions install the library.
_FOLDERS = (
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
    """Check that the user-space driver for Intel's GPUs is installed. With the kernel
    driver alone, torch finds no GPU.

    Source: vllm-project/vllm#47578. The package is libze-intel-gpu1 in Ubuntu and
    Debian, and intel-level-zero-gpu in Intel's repository.
    """
    build = build or torch_build()
    nodes = sorted((root / "dev/dri").glob("renderD*"))
    if not (build and build.xpu) or not nodes:
        return CheckResult("ok", "not an XPU build of torch with a GPU's device node")
    variables = os.environ if environ is None else environ
    for folder in _folders(root, variables):
        for name in _DRIVERS:
            if (folder / name).exists():
                return CheckResult("ok", f"{folder / name} exists")
    return CheckResult(
        "error",
        "libze_intel_gpu.so.1 is missing, so torch finds no Intel GPU",
        "install the package libze-intel-gpu1 (Debian, Ubuntu) or intel-level-zero-gpu",
    )


def _folders(root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    for entry in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if entry:
            yield root / entry.lstrip("/")
    for folder in _FOLDERS:
        yield root / folder


CHECKS = [
    Check("level-zero-driver", "Intel's Level Zero driver", level_zero_driver),
]
