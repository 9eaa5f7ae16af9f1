"""Check whether the CUDA or ROCm toolkit that torch would compile with is installed and suits torch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from accel_core.torch_import import import_torch

__all__ = ["missing_compiler_reason"]


def missing_compiler_reason() -> str:
    """Return a clause that states why CUDA or HIP code cannot be compiled on this machine.

    Returns an empty string if the code can be compiled.
    """
    from torch.utils import cpp_extension

    torch = import_torch()
    if torch.version.hip:
        return _hipcc_problem(cpp_extension.ROCM_HOME, torch.version.hip)
    if torch.version.cuda:
        return _nvcc_problem(cpp_extension.CUDA_HOME, torch.version.cuda)
    return f"torch {torch.__version__} is built without CUDA: run `accel setup cuda`"


def _hipcc_problem(rocm_home: str | None, rocm_version: str) -> str:
    """Return a clause that states that the folder `rocm_home` has no hipcc.

    Returns an empty string if the folder has hipcc.
    """
    if rocm_home and Path(rocm_home, "bin", "hipcc").exists():
        return ""
    return f"hipcc is missing (ROCM_HOME is {rocm_home}): install ROCm {rocm_version}"


def _nvcc_problem(cuda_home: str | None, torch_cuda: str) -> str:
    """Return a clause that states that `cuda_home` has no nvcc, or that its nvcc does not suit torch.

    Returns an empty string if nvcc suits torch: its major version equals that of `torch_cuda`, the CUDA
    version that torch is built for. Also returns an empty string if nvcc's version is unknown.
    """
    nvcc = Path(cuda_home or "", "bin", "nvcc")
    if not cuda_home or not nvcc.exists():
        return (
            f"nvcc is missing (CUDA_HOME is {cuda_home}): install the CUDA toolkit {torch_cuda}, "
            "or set CUDA_HOME"
        )
    torch_major, _, _ = torch_cuda.partition(".")
    nvcc_major = _major_version_of(nvcc)
    is_unknown = nvcc_major == ""
    if is_unknown or nvcc_major == torch_major:
        return ""
    return (
        f"nvcc in {cuda_home} is from CUDA {nvcc_major}, but torch is built for CUDA {torch_cuda}: "
        f"set CUDA_HOME to the folder of a CUDA toolkit {torch_major}.x"
    )


def _major_version_of(nvcc: Path) -> str:
    """Return the major version that nvcc prints.

    Returns an empty string if nvcc cannot be run or prints no version.
    """
    try:
        process = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    # nvcc prints its version as in `release 12.4`.
    release = re.search(r"release (?P<major>\d+)", process.stdout)
    if release is None:
        return ""
    return release["major"]
