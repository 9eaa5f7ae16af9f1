"""Checks of `accel doctor` for NVIDIA's GPUs, from files: the driver's other module, its library."""

from __future__ import annotations

import re
from pathlib import Path

from accel_core import Check, CheckResult

__all__ = ["CHECKS", "driver_library", "unified_memory"]

_ROOT = Path("/")
#: Where distributions, and NVIDIA's container toolkit, put libcuda.so.
_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
)  # fmt: skip
_NOT_HERE = CheckResult("ok", "there is no NVIDIA device node here")


def unified_memory(root: Path = _ROOT) -> CheckResult:
    """Check that the node of `nvidia-uvm` exists: CUDA opens it first, `nvidia-smi` never.

    NVIDIA's driver README, "nvidia-uvm.ko"; nvidia-modprobe(1), `-u`.
    """
    cards = _cards(root)
    if not cards:
        return _NOT_HERE
    facts = {"device nodes": ", ".join(cards)}
    if (root / "dev/nvidia-uvm").exists():
        return CheckResult("ok", "/dev/nvidia-uvm is there", facts=facts)
    loaded = (root / "sys/module/nvidia_uvm").exists()
    step = (
        "in a container, start it with the node: docker run --gpus all gives it; on the host, run "
        "`sudo nvidia-modprobe -u -c=0`"
    )
    facts["nvidia_uvm"] = "loaded" if loaded else "not loaded"
    return CheckResult("error", "/dev/nvidia-uvm is missing, without which CUDA finds no GPU", step, facts)


def driver_library(root: Path = _ROOT) -> CheckResult:
    """Check that libcuda.so has the kernel module's version: after an update they differ until a reboot.

    NVIDIA's driver README: all parts of one driver have one version. The module's is in
    `/proc/driver/nvidia/version` ("NVRM version: … 535.104.05 …"), the library's in its file's name.
    """
    text = _read(root / "proc/driver/nvidia/version")
    module = re.search(r"NVRM version:.*?\s(\d{3,}(?:\.\d+)+)\s", text)
    if module is None:
        return CheckResult("ok", "the NVIDIA driver is not loaded here")
    names = [file.name for folder in _LIBRARIES for file in (root / folder).glob("libcuda.so.*.*")]
    libraries = sorted({name.removeprefix("libcuda.so.") for name in names})
    facts = {"kernel module": module[1], "libcuda.so": ", ".join(libraries) or "in none of the usual folders"}
    if not libraries or module[1] in libraries:
        return CheckResult("ok", f"the driver is {module[1]}", facts=facts)
    return CheckResult(
        "error",
        f"the kernel runs the NVIDIA driver {module[1]} and libcuda.so is of {', '.join(libraries)}",
        "reboot, or reload the nvidia modules; in a container, start it anew with the host's libraries",
        facts,
    )


def _cards(root: Path) -> list[str]:
    names = (path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    return sorted(f"/dev/{name}" for name in names if re.fullmatch(r"nvidia\d+", name))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


CHECKS = [
    Check("unified-memory", "NVIDIA's unified memory module", unified_memory),
    Check("driver-library", "The NVIDIA driver and its library", driver_library),
]
