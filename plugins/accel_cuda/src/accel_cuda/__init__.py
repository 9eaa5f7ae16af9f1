"""NVIDIA and ROCm devices for accel-core: the backend `cuda`, through torch.cuda.

The name is declared twice, for the two kinds of hardware behind torch.cuda; torch is
built for one of them. Where the hardware or the torch is of a maker who builds torch
for its own GPUs under CUDA's or ROCm's name, that maker's declaration is in the place
of NVIDIA's or AMD's. Importing this module imports neither torch nor anything of the
vendors'.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from accel_core import (
    Backend,
    Environment,
    Evidence,
    Granted,
    Hardware,
    InTorch,
    ProbeResult,
    Visibility,
    evidence,
    hookimpl,
    torch_build,
)

if TYPE_CHECKING:
    from accel_core import Check

__all__ = ["CUDA", "HYGON", "ILUVATAR", "LOOK_ALIKES", "METAX", "ROCM"]

_SETUP = "accel setup cuda"
_NVIDIA_DRIVER = "install the NVIDIA driver; `nvidia-smi` shows when it works"

#: What an error's text says, and what the user can do about it. One table for both: a
#: torch for the one kind of hardware fails beside the other as well.
_HINTS = (
    (
        r"re-initialize cuda in forked",
        "use the start method 'spawn', or do not touch the device before the fork",
    ),
    (
        r"invalid device ordinal|cuda_error_invalid_device",
        "name a device below device_count(); CUDA_VISIBLE_DEVICES renumbers them",
    ),
    (r"not compiled with cuda|cuda functions? .*unavailable", _SETUP),
    (
        (
            r"driver on your system is too old|insufficient for cuda "
            r"runtime|cuda_error_insufficient_driver"
        ),
        f"update the NVIDIA driver, or install the torch that it runs: {_SETUP}",
    ),
    (r"found no nvidia driver|libcuda\.so|cuda_error_stub_library", _NVIDIA_DRIVER),
    (
        (
            r"driver/library version mismatch|unsupported display "
            r"driver|system_driver_mismatch"
        ),
        (
            "the NVIDIA driver was updated under a running kernel: reboot, or reload "
            "its modules"
        ),
    ),
    (
        r"forward compatibility|compat_not_supported",
        (
            "the CUDA compatibility package does not fit this GPU: take it off "
            "LD_LIBRARY_PATH, or update"
        ),
    ),
    (
        r"system not yet initialized|system_not_ready",
        "start NVIDIA's fabric manager: systemctl start nvidia-fabricmanager",
    ),
    (
        r"busy or unavailable|devices_unavailable",
        (
            "another process holds the device alone; `nvidia-smi -q -d COMPUTE` shows "
            "the mode"
        ),
    ),
    (
        (
            r"no (cuda|hip|rocm)[- ](gpus|capable "
            r"device)|cuda_error_no_device|hiperrornodevice"
        ),
        (
            "check that `nvidia-smi` or `rocminfo` lists the device, and "
            "CUDA_VISIBLE_DEVICES"
        ),
    ),
    (
        r"hip error: (invalid device function|device kernel image is invalid)",
        (
            f"this torch has no kernels for this GPU, maybe the processor's own "
            f"(`accel doctor` tells): {_SETUP}"
        ),
    ),
    (
        r"no kernel image|no_binary_for_gpu|invalid device function",
        f"this torch has no kernels for this GPU: {_SETUP}",
    ),
    (
        r"cuda unknown error|cuda_error_unknown",
        (
            "often after suspend: `modprobe -r nvidia_uvm && modprobe nvidia_uvm`, or "
            "reboot"
        ),
    ),
    (
        r"out of memory|cuda_error_out_of_memory",
        "`nvidia-smi` shows which processes hold the device's memory",
    ),
    (
        (
            r"lib(cu(dart|blas|dnn|fft|rand|solver|sparse|pti|file)|nccl|nvrtc|"
            r"nvjitlink|nvshmem)[\w\-]*\.so"
        ),
        (
            "reinstall torch with its nvidia-* packages, and start without an "
            "LD_LIBRARY_PATH to other ones"
        ),
    ),
    (
        r"lib(amdhip|hip|roc|rccl|miopen|hsa|amd_smi)[\w\-]*\.so",
        "install the ROCm version that this torch was built for",
    ),
)

CUDA = Backend(
    name="cuda",
    priority=200,
    device_type="cuda",
    vendor_import="torch",
    accelerator="accel_cuda.accelerator:CUDAAccelerator",
    description="NVIDIA GPUs, in CUDA builds of torch",
    url="https://pytorch.org/docs/stable/cuda.html",
    install_hint=_SETUP,
    requires=("torch>=2.6",),
    communication_backend="gloo" if sys.platform == "win32" else "nccl",
    compile_backend="inductor",
    hardware=Hardware(
        name="NVIDIA GPU",
        # /dev/dxg is WSL2's door to any maker's GPU; the Jetson's GPU is no PCI device.
        nodes=(
            "/dev/nvidia[0-9]*",
            "/dev/dxg",
            "/dev/nvhost-ctrl-gpu",
            "/dev/nvgpu/igpu[0-9]*",
        ),
        pci_ids=("10de/03",),
        # NVIDIA's driver README, on the files of /proc; a container sees them without
        # its GPUs too.
        driver_file="/proc/driver/nvidia/version",
        driver_step=_NVIDIA_DRIVER,
    ),
    visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda"),
    granted=Granted(
        # https://docs.docker.com/reference/cli/docker/container/run/#gpus
        docker="--gpus all",
        # https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/,
        # https://slurm.schedmd.com/gres.html,
        # https://apptainer.org/docs/user/latest/gpu.html, and NVIDIA's Container
        # Toolkit, "Support for CDI"; Ray 2.60.0,
        # ray/_private/accelerators/nvidia_gpu.py.
        kubernetes="nvidia.com/gpu",
        slurm="gpu",
        apptainer="--nv",
        podman="--device nvidia.com/gpu=all",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
    ),
    in_torch=InTorch(
        builds=("cuda",),
        wrapped_by=("spaces",),  # Hugging Face's ZeroGPU
        # Kunlunxin's: torch.cuda's functions stay torch's, over a CUDA runtime of its
        # own. vLLM-Kunlun, vllm_kunlun/platforms/kunlun.py; LMCache,
        # lmcache/v1/platform/klx_xpu.
        taken_over_by=("torch_xmlir",),
    ),
    environment=Environment(
        # Not all of CUDA_*: which devices are visible is each node's own affair. RCCL
        # reads NCCL_* as well.
        forward=("NCCL", "TORCH_NCCL", "RCCL", "CUDA_DEVICE_", "CUDA_LAUNCH_BLOCKING"),
    ),
    hints=_HINTS,
)

ROCM = replace(
    CUDA,
    priority=190,
    description="AMD GPUs, in ROCm builds of torch",
    url="https://pytorch.org/docs/stable/notes/hip.html",
    hardware=replace(
        CUDA.hardware,
        name="AMD GPU",
        nodes=("/dev/kfd", "/dev/dxg"),
        pci_ids=("1002/03", "1002/12"),
        # ROCm/rocm_smi_lib, python_smi_tools/rocm_smi.py.
        driver_file="/sys/module/amdgpu/initstate",
        driver_step="install the amdgpu driver; `rocminfo` shows when it works",
    ),
    visibility=replace(
        CUDA.visibility,
        # HIP takes CUDA's name too, and ROCr has filtered before: only one of HIP's may
        # be written. https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
        variables=("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        filters=("ROCR_VISIBLE_DEVICES",),
    ),
    granted=Granted(
        # https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html
        docker="--device /dev/kfd --device /dev/dri",
        # Ray 2.60.0, ray/_private/accelerators/amd_gpu.py.
        kubernetes="amd.com/gpu",
        slurm="gpu",
        apptainer="--rocm",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
    ),
    in_torch=replace(CUDA.in_torch, builds=("hip",)),
)


# --- Makers who build torch for their own GPUs under CUDA's or ROCm's name -----------------------------

# gpustack/runtime has the PCI id and the node: gpustack_runtime/detector/metax.py,
# deployer/cdi/metax.py; Project-HAMi/HAMi, docs/metax-support.md, the module and the
# resource; MetaX-MACA/vLLM-metax the rest: docs/release/0.26.0/en.md (docker's options,
# MCCL_*, one process a GPU), and vllm_metax/platform.py (Ray's name and the
# visible-devices variable, which are CUDA's).
METAX = replace(
    CUDA,
    description="MetaX GPUs, in MetaX's builds of torch, which answer as torch.cuda",
    url="https://developer.metax-tech.com/softnova",
    install_hint="take MetaX's driver, SDK and torch of one release: https://developer.metax-tech.com/softnova",
    requires=(),  # where it is not met, pip would bring PyTorch's build; of an older torch the hints speak
    hardware=Hardware(
        name="MetaX GPU",
        nodes=("/dev/mxcd",),
        pci_ids=("9999",),
        driver_file="/sys/module/metax",
        driver_step="install MetaX's driver; `mx-smi` shows when it works",
    ),
    granted=Granted(
        docker="--device /dev/dri --device /dev/mxcd --group-add video",
        kubernetes="metax-tech.com/gpu",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
    ),
    environment=Environment(forward=(*CUDA.environment.forward, "MCCL", "MACA")),
    hints=(
        *_HINTS[:2],  # whoever made the device
        (
            r"busy or unavailable|devices_unavailable",
            (
                "another process holds the GPU, which MACA gives to one alone: set "
                "MACA_MPS_MODE=1"
            ),
        ),
        (
            (
                r"no (cuda|hip|rocm)[- ](gpus|capable "
                r"device)|cuda_error_no_device|hiperrornodevice"
            ),
            "check that `mx-smi` lists the device, and CUDA_VISIBLE_DEVICES",
        ),
        (
            r"out of memory|cuda_error_out_of_memory",
            "`mx-smi` shows which processes hold the device's memory",
        ),
        (
            (
                r"driver|not compiled with cuda|no kernel image|invalid device "
                r"function|lib[\w\-]+\.so"
            ),
            (
                "take MetaX's driver, SDK and torch of one release: "
                "https://developer.metax-tech.com/softnova"
            ),
        ),
        (
            r"no attribute 'accelerator'",
            (
                "take a newer MetaX release, with torch 2.6 or newer: "
                "https://developer.metax-tech.com/softnova"
            ),
        ),
    ),
)
# gpustack/runtime: gpustack_runtime/detector/iluvatar.py, deployer/cdi/iluvatar.py. Of
# Deep-Spark: ix-device-plugin, pkg/config/config.go, and ix-container-toolkit,
# README.md.
ILUVATAR = replace(
    CUDA,
    description="Iluvatar GPUs, in Iluvatar's builds of torch, which answer as torch.cuda",
    url="https://support.iluvatar.com/",
    install_hint="take Iluvatar's driver, SDK and torch of one release: https://support.iluvatar.com/",
    requires=(),  # where it is not met, pip would bring PyTorch's build; of an older torch the hints speak
    hardware=Hardware(
        name="Iluvatar GPU",
        nodes=("/dev/iluvatar[0-9]*",),
        pci_ids=("1e3e",),
        driver_step="install Iluvatar's driver; `ixsmi` shows when it works",
    ),
    granted=Granted(
        docker="--device /dev/iluvatar0",
        kubernetes="iluvatar.com/gpu",
        podman="--device iluvatar.com/gpu=all",
    ),
    hints=(
        *_HINTS[:2],  # whoever made the device
        (
            (
                r"no (cuda|hip|rocm)[- ](gpus|capable "
                r"device)|cuda_error_no_device|hiperrornodevice"
            ),
            "check that `ixsmi` lists the device, and CUDA_VISIBLE_DEVICES",
        ),
        (
            r"out of memory|cuda_error_out_of_memory",
            "`ixsmi` shows which processes hold the device's memory",
        ),
        (
            (
                r"driver|not compiled with cuda|no kernel image|invalid device "
                r"function|lib[\w\-]+\.so"
            ),
            (
                "take Iluvatar's driver, SDK and torch of one release: "
                "https://support.iluvatar.com/"
            ),
        ),
        (
            r"no attribute 'accelerator'",
            (
                "take a newer Iluvatar release, with torch 2.6 or newer: "
                "https://support.iluvatar.com/"
            ),
        ),
    ),
)
# HYGON-AI/k8s-hcu-device-plugin: internal/pkg/util/types.go, hcu.go (display
# controllers and co-processors), README_EN.md. HAMi's docs/hygon-dcu-support.md has the
# address and /opt/hyhal.
HYGON = replace(
    ROCM,
    description="Hygon DCUs, in Hygon's builds of torch, which answer as torch.cuda",
    url="https://developer.sourcefind.cn/",
    install_hint="take Hygon's driver, SDK and torch of one release: https://developer.sourcefind.cn/",
    requires=(),  # where it is not met, pip would bring PyTorch's build; of an older torch the hints speak
    hardware=Hardware(
        name="Hygon DCU",
        nodes=("/dev/mkfd", "/dev/kfd"),
        pci_ids=("1d94/03", "1d94/0b"),
        driver_file="/sys/class/kfd",
        driver_step="install Hygon's driver; `hy-smi` shows when it works",
    ),
    granted=Granted(
        docker="--device /dev/kfd --device /dev/mkfd --device /dev/dri -v /opt/hyhal:/opt/hyhal "
        "--group-add video",
        kubernetes="hygon.com/hcu",
    ),
    hints=(
        *_HINTS[:2],  # whoever made the device
        (
            (
                r"no (cuda|hip|rocm)[- ](gpus|capable "
                r"device)|cuda_error_no_device|hiperrornodevice"
            ),
            "check that `hy-smi` lists the device, and HIP_VISIBLE_DEVICES",
        ),
        (
            r"out of memory|cuda_error_out_of_memory",
            "`hy-smi` shows which processes hold the device's memory",
        ),
        (
            (
                r"driver|not compiled with cuda|no kernel image|invalid device "
                r"function|lib[\w\-]+\.so"
            ),
            (
                "take Hygon's driver, SDK and torch of one release: "
                "https://developer.sourcefind.cn/"
            ),
        ),
        (
            r"no attribute 'accelerator'",
            (
                "take a newer Hygon release, with torch 2.6 or newer: "
                "https://developer.sourcefind.cn/"
            ),
        ),
    ),
)
#: Each with the mark that its maker's builds of torch have in their version:
#: `2.8.0+metax3.5.3.9`, `2.7.1+corex.4.4.0`, `2.10.0+das.opt1.dtk2604`.
LOOK_ALIKES = {"metax": METAX, "corex": ILUVATAR, "dtk": HYGON}


def _here(declared: Backend) -> Backend:
    """The declaration, or the look-alike's whose torch is installed, or whose device
    alone is here.
    """
    build = torch_build()
    alikes = {m: a for m, a in LOOK_ALIKES.items() if a.in_torch == declared.in_torch}
    marked = [
        alike for mark, alike in alikes.items() if build and mark in build.version
    ]
    seen = [
        a for a in alikes.values() if _signs(a, declared) and not _signs(declared, a)
    ]
    return [*marked, *seen, declared][0]


def _signs(backend: Backend, beside: Backend) -> set[str]:
    """Signs of that device on this machine that are not the other's too: both may have
    /dev/kfd.
    """
    found = evidence(backend) or Evidence()
    return {*found.nodes, *found.pci} - {*beside.hardware.nodes}


# --- Hooks ---------------------------------------------------------------------------------------------


@hookimpl
def accel_backends() -> list[Backend]:
    """Return the backend `cuda` twice: for NVIDIA's GPUs and for AMD's, or a look-alike
    in their place.
    """
    return [_here(CUDA), _here(ROCM)]


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Say that beside a look-alike's device there is another maker's torch."""
    mark = next(
        (m for m, a in LOOK_ALIKES.items() if a.hardware == backend.hardware), ""
    )
    # Of the distribution: `torch.version` of some of Iluvatar's builds lacks the mark.
    release = metadata.version("torch") if mark else ""
    why = f"torch {release} is not {backend.hardware.name.partition(' ')[0]}'s build"
    return None if mark in release else ProbeResult(False, why, backend.install_hint)


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of what NVIDIA's driver needs besides its device nodes."""
    from accel_cuda.checks import (
        CHECKS,
    )  # here, because finding this plugin must cost nothing

    return CHECKS if backend.hardware == CUDA.hardware else []
