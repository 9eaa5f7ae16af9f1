"""NVIDIA and ROCm devices for accel-core: the backend `cuda`, through torch.cuda.

The name is declared twice, for the two kinds of hardware behind torch.cuda; torch is built for one of them.
Importing this module imports neither torch nor anything of the vendors'.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from accel_core import Backend, Environment, Granted, Hardware, InTorch, Visibility, hookimpl

if TYPE_CHECKING:
    from accel_core import Check

__all__ = ["CUDA", "ROCM"]

_SETUP = "accel setup cuda"
_NVIDIA_DRIVER = "install the NVIDIA driver; `nvidia-smi` shows when it works"

#: What an error's text says, and what the user can do about it. One table for both: a torch for the one kind
#: of hardware fails beside the other as well.
_HINTS = (
    (r"not compiled with cuda|cuda functions? .*unavailable", _SETUP),
    (r"driver on your system is too old|insufficient for cuda runtime|cuda_error_insufficient_driver",
     f"update the NVIDIA driver, or install the torch that it runs: {_SETUP}"),
    (r"found no nvidia driver|libcuda\.so|cuda_error_stub_library", _NVIDIA_DRIVER),
    (r"driver/library version mismatch|unsupported display driver|system_driver_mismatch",
     "the NVIDIA driver was updated under a running kernel: reboot, or reload its modules"),
    (r"forward compatibility|compat_not_supported",
     "the CUDA compatibility package does not fit this GPU: take it off LD_LIBRARY_PATH, or update"),
    (r"system not yet initialized|system_not_ready",
     "start NVIDIA's fabric manager: systemctl start nvidia-fabricmanager"),
    (r"re-initialize cuda in forked",
     "use the start method 'spawn', or do not touch the device before the fork"),
    (r"busy or unavailable|devices_unavailable",
     "another process holds the device alone; `nvidia-smi -q -d COMPUTE` shows the mode"),
    (r"no (cuda|hip|rocm)[- ](gpus|capable device)|cuda_error_no_device|hiperrornodevice",
     "check that `nvidia-smi` or `rocminfo` lists the device, and CUDA_VISIBLE_DEVICES"),
    (r"invalid device ordinal|cuda_error_invalid_device",
     "name a device below device_count(); CUDA_VISIBLE_DEVICES renumbers them"),
    (r"no kernel image|no_binary_for_gpu|invalid device function",
     f"this torch has no kernels for this GPU: {_SETUP}"),
    (r"cuda unknown error|cuda_error_unknown",
     "often after suspend: `modprobe -r nvidia_uvm && modprobe nvidia_uvm`, or reboot"),
    (r"out of memory|cuda_error_out_of_memory",
     "`nvidia-smi` shows which processes hold the device's memory"),
    (r"lib(cu(dart|blas|dnn|fft|rand|solver|sparse|pti|file)|nccl|nvrtc|nvjitlink|nvshmem)[\w\-]*\.so",
     "reinstall torch with its nvidia-* packages, and start without an LD_LIBRARY_PATH to other ones"),
    (r"lib(amdhip|hip|roc|rccl|miopen|hsa|amd_smi)[\w\-]*\.so",
     "install the ROCm version that this torch was built for")
)  # fmt: skip

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
        nodes=("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu[0-9]*"),
        pci_ids=("10de/03",),
        # NVIDIA's driver README, on the files of /proc; a container sees them without its GPUs too.
        driver_file="/proc/driver/nvidia/version",
        driver_step=_NVIDIA_DRIVER,
    ),
    visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda"),
    granted=Granted(
        # https://docs.docker.com/reference/cli/docker/container/run/#gpus
        docker="--gpus all",
        # https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/, https://slurm.schedmd.com/gres.html,
        # https://apptainer.org/docs/user/latest/gpu.html, and NVIDIA's Container Toolkit, "Support for CDI";
        # Ray 2.60.0, ray/_private/accelerators/nvidia_gpu.py.
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
        # Kunlunxin's: torch.cuda's functions stay torch's, over a CUDA runtime of its own. vLLM-Kunlun,
        # vllm_kunlun/platforms/kunlun.py; LMCache, lmcache/v1/platform/klx_xpu.
        taken_over_by=("torch_xmlir",),
    ),
    environment=Environment(
        # Not all of CUDA_*: which devices are visible is each node's own affair. RCCL reads NCCL_* as well.
        forward=("NCCL", "TORCH_NCCL", "RCCL", "CUDA_DEVICE_", "CUDA_LAUNCH_BLOCKING"),
    ),
    hints=_HINTS,
)

ROCM = replace(
    CUDA,
    priority=190,
    description="AMD GPUs, in ROCm builds of torch",
    url="https://pytorch.org/docs/stable/notes/hip.html",
    hardware=CUDA.hardware._replace(
        name="AMD GPU",
        nodes=("/dev/kfd", "/dev/dxg"),
        pci_ids=("1002/03", "1002/12"),
        # ROCm/rocm_smi_lib, python_smi_tools/rocm_smi.py.
        driver_file="/sys/module/amdgpu/initstate",
        driver_step="install the amdgpu driver; `rocminfo` shows when it works",
    ),
    visibility=CUDA.visibility._replace(
        # HIP takes CUDA's name too, and ROCr has filtered before: only one of HIP's may be written.
        # https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
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
    in_torch=CUDA.in_torch._replace(builds=("hip",)),
)


@hookimpl
def accel_backends() -> list[Backend]:
    """Return the backend `cuda` twice: for NVIDIA's GPUs and for AMD's."""
    return [CUDA, ROCM]


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of what NVIDIA's driver needs besides its device nodes."""
    from accel_cuda.checks import CHECKS  # here, because finding this plugin must cost nothing

    return CHECKS if backend.in_torch.builds == CUDA.in_torch.builds else []
