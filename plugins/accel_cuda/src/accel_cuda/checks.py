"""Checks of `accel doctor` that read files.

They check the parts of the NVIDIA driver, the Windows driver under WSL2, and the GPU
inside an AMD CPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from accel_core import Check, CheckResult, TorchBuild, torch_build

__all__ = [
    "CHECKS",
    "container_capabilities",
    "driver_library",
    "integrated_gpu",
    "unified_memory",
    "windows_driver",
]

_ROOT = Path("/")
#: Folders in which distributions and NVIDIA's container toolkit install libcuda.so.
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
)
#: PCI ids of the GPUs inside AMD's CPUs, from Raven Ridge to Krackan Point. Source:
#: https://pci-ids.ucw.cz.
_INTEGRATED_GPU_IDS = (
    0x15DD,
    0x15D8,
    0x1636,
    0x1638,
    0x164C,
    0x15E7,
    0x163F,
    0x164D,
    0x1681,
    0x1506,
    0x164E,
    0x13C0,
    0x15BF,
    0x15C8,
    0x1900,
    0x1901,
    0x150E,
    0x1114,
    0x1586,
)


def unified_memory(root: Path = _ROOT) -> CheckResult:
    """Check that /dev/nvidia-uvm exists, which CUDA needs but `nvidia-smi` does not.

    Sources: NVIDIA's driver README, "nvidia-uvm.ko"; nvidia-modprobe(1), `-u`.
    """
    node_names = [node.name for node in (root / "dev").glob("nvidia*")]
    # /dev/nvidia0 is the node of a GPU; /dev/nvidiactl is not.
    gpu_nodes = sorted(
        name for name in node_names if name.removeprefix("nvidia").isdecimal()
    )
    if not gpu_nodes:
        return CheckResult("ok", "no NVIDIA device node")
    facts = {"device nodes": ", ".join(f"/dev/{name}" for name in gpu_nodes)}
    if (root / "dev/nvidia-uvm").exists():
        return CheckResult("ok", "/dev/nvidia-uvm exists", facts=facts)
    step = (
        "run `sudo nvidia-modprobe -u -c=0` on the host, and restart the container. If the "
        "container is started with `--device` options, add `--device /dev/nvidia-uvm`"
    )
    is_module_loaded = (root / "sys/module/nvidia_uvm").exists()
    facts["nvidia_uvm"] = "loaded" if is_module_loaded else "not loaded"
    return CheckResult(
        "error",
        "/dev/nvidia-uvm is missing, so CUDA finds no GPU",
        step,
        facts,
    )


def container_capabilities(environ: Mapping[str, str] | None = None) -> CheckResult:
    """Check that NVIDIA's container runtime has mounted CUDA's libraries.

    The runtime mounts only the parts that `NVIDIA_DRIVER_CAPABILITIES` lists:
    `utility` is nvidia-smi, `compute` is libcuda.so. Source: NVIDIA Container Toolkit,
    "Driver Capabilities".
    """
    name = "NVIDIA_DRIVER_CAPABILITIES"
    if environ is None:
        environ = os.environ
    value = environ.get(name, "")
    capabilities = {part.strip() for part in value.split(",")}
    # Outside NVIDIA's containers the variable is not set.
    if not value or capabilities & {"compute", "all"}:
        return CheckResult("ok", f"{name} includes CUDA's libraries")
    return CheckResult(
        "error",
        f"{name}={value!r} leaves libcuda.so out of this container",
        "restart the container with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )


def windows_driver(root: Path = _ROOT, build: TorchBuild | None = None) -> CheckResult:
    """Check that WSL2 provides the GPU and the Windows driver's libcuda.so.

    A driver that is installed inside WSL2 does not work.

    Sources: microsoft/WSL#7056, and NVIDIA's guide for CUDA on WSL.
    """
    build = build or torch_build()
    kernel = _read(root / "proc/sys/kernel/osrelease").strip()
    is_cuda_build = build is not None and bool(build.cuda)
    is_wsl = "microsoft" in kernel.lower()
    if not is_cuda_build or not is_wsl:
        return CheckResult("ok", "not WSL2 with a CUDA build of torch")
    facts = {"kernel": kernel}
    if not (root / "dev/dxg").exists():
        step = (
            "in Windows 11, or Windows 10 21H2, install NVIDIA's driver for Windows, "
            "then run `wsl --update`"
        )
        what = "WSL2 shows no GPU: /dev/dxg is missing"
        return CheckResult("warning", what, step, facts)
    if not (root / "usr/lib/wsl/lib/libcuda.so.1").exists():
        step = "install NVIDIA's driver in Windows, not in WSL2, then run `wsl --shutdown` in Windows"
        what = "WSL2 has no NVIDIA driver from Windows in /usr/lib/wsl/lib"
        return CheckResult("warning", what, step, facts)
    return CheckResult("ok", "WSL2 has the NVIDIA driver of Windows", facts=facts)


def driver_library(root: Path = _ROOT) -> CheckResult:
    """Check that libcuda.so and NVIDIA's kernel module have the same version.

    After a driver update, the versions differ until a reboot. The version of the module
    is in `/proc/driver/nvidia/version` ("NVRM version: … 535.104.05 …"). The version of
    the library is in its file name. Source: NVIDIA's driver README, which requires the
    same version for all parts.
    """
    text = _read(root / "proc/driver/nvidia/version")
    # For example: NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19
    match = re.search(r"NVRM version:.*?\s(\d{3,}(?:\.\d+)+)\s", text)
    if match is None:
        return CheckResult("ok", "the NVIDIA driver is not loaded")
    module_version = match[1]
    versions = set()
    for folder in _LIBRARY_FOLDERS:
        for file in (root / folder).glob("libcuda.so.*.*"):
            versions.add(file.name.removeprefix("libcuda.so."))
    library_versions = ", ".join(sorted(versions))
    facts = {
        "kernel module": module_version,
        "libcuda.so": library_versions or "not found in the usual folders",
    }
    if not versions or module_version in versions:
        return CheckResult(
            "ok", f"the NVIDIA driver has version {module_version}", facts=facts
        )
    what = f"the kernel has NVIDIA driver {module_version}, but libcuda.so has version {library_versions}"
    step = (
        "reboot, or reload the nvidia modules. If this is a container, restart the container "
        "to get the host's libraries"
    )
    return CheckResult("error", what, step, facts)


def integrated_gpu(root: Path = _ROOT, build: TorchBuild | None = None) -> CheckResult:
    """Check that ROCm does not list both an AMD card and the GPU inside an AMD CPU.

    torch seldom has kernels for a GPU inside a CPU. The error is then "HIP error:
    invalid device function" or "device kernel image is invalid":
    ROCm/legacy-rocm-build#3401, ROCm/TheRock#3392. ROCm numbers the GPUs in the order
    of the kernel's driver.
    """
    build = build or torch_build()
    integrated = []
    cards = []
    for index, device_id in enumerate(_find_rocm_device_ids(root)):
        if device_id in _INTEGRATED_GPU_IDS:
            integrated.append(str(index))
        else:
            cards.append(str(index))
    is_rocm_build = build is not None and bool(build.hip)
    has_both = bool(integrated and cards)
    if not is_rocm_build or not has_both or _is_visibility_set():
        what = "ROCm does not list both an AMD card and the GPU inside an AMD CPU"
        return CheckResult("ok", what)
    what = (
        f"device {', '.join(integrated)} is the GPU inside the AMD CPU, for which "
        "torch may have no kernels"
    )
    step = f"export HIP_VISIBLE_DEVICES={','.join(cards)}"
    return CheckResult("warning", what, step)


def _is_visibility_set() -> bool:
    """Return whether an environment variable selects the visible AMD GPUs."""
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return any(name in os.environ for name in names)


def _find_rocm_device_ids(root: Path) -> list[int]:
    """Return the PCI device ids of the GPUs that ROCm may open, in ROCm's order.

    Source: Linux, amdkfd/kfd_topology.c.
    """

    def node_number(properties_file: Path) -> int:
        return int(properties_file.parent.name)

    files = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    ids = []
    for file in sorted(files, key=node_number):
        # Each line has the form "NAME NUMBER".
        properties = dict(re.findall(r"^(\w+) (\d+)$", _read(file), re.MULTILINE))
        is_gpu = properties.get("simd_count", "0") != "0"
        render_node = root / f"dev/dri/renderD{properties.get('drm_render_minor')}"
        can_open_gpu = render_node.exists()
        if is_gpu and can_open_gpu:
            ids.append(int(properties.get("device_id", "0")))
    return ids


def _read(path: Path) -> str:
    """Return the contents of a text file, or an empty string if the file cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


CHECKS = [
    Check("unified-memory", "NVIDIA's unified memory module", unified_memory),
    Check("driver-library", "The NVIDIA driver and its library", driver_library),
    Check(
        "container-capabilities",
        "Parts of the NVIDIA driver in a container",
        container_capabilities,
    ),
    Check("windows-driver", "The NVIDIA driver of Windows, under WSL2", windows_driver),
    Check("processors-gpu", "The GPU inside an AMD CPU", integrated_gpu),
]
