"""The CUDA or ROCm toolkit that torch would compile with: whether it is here, and fits torch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from accel_core.torch_import import import_torch


def fault() -> str:
    """Return why no code for CUDA or HIP can be compiled here, as a clause; empty if it can."""
    from torch.utils import cpp_extension

    torch = import_torch()
    if torch.version.hip:
        return _fault_of_rocm(cpp_extension.ROCM_HOME, torch.version.hip)
    if torch.version.cuda:
        return _fault_of_cuda(cpp_extension.CUDA_HOME, torch.version.cuda)
    return f"torch {torch.__version__} is built without CUDA: accel setup cuda"


def _fault_of_rocm(home: str | None, release: str) -> str:
    if home and Path(home, "bin", "hipcc").exists():
        return ""
    return f"hipcc is missing (ROCM_HOME is {home}): install ROCm {release}"


def _fault_of_cuda(home: str | None, release: str) -> str:
    nvcc = Path(home or "", "bin", "nvcc")
    if not home or not nvcc.exists():
        return (
            f"nvcc is missing (CUDA_HOME is {home}): install the CUDA toolkit {release}, "
            "or set CUDA_HOME"
        )
    major = release.partition(".")[0]
    other = _major_of(nvcc)
    if other in ("", major):
        return ""
    return (
        f"nvcc in {home} is from CUDA {other}, but torch is built for CUDA {release}: "
        f"set CUDA_HOME to a toolkit {major}.x"
    )


def _major_of(nvcc: Path) -> str:
    """Return the first number of nvcc's release; empty if it does not tell."""
    try:
        done = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    release = re.search(r"release (\d+)", done.stdout)
    return release[1] if release else ""
