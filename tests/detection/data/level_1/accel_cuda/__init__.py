"""NVIDIA and ROCm devices for accel-core: what the backend `cuda` is, and why it may not be usable.

Importing this module imports neither torch nor anything of the vendors'.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import accel_core
from accel_core import Backend, ProbeResult, hookimpl

__all__ = ["BACKEND"]


@dataclass(frozen=True, slots=True)
class _Maker:
    """One of the two kinds of hardware behind torch.cuda, and how its driver shows."""

    gpu: str
    platform: str
    nodes: tuple[str, ...]
    pci: tuple[str, ...]
    #: A file that is there when the kernel has the driver loaded.
    driver: str
    driver_hint: str
    #: What starts a container with its GPUs.
    container_hint: str


#: /dev/dxg is WSL2's door to any maker's GPU; the Jetson's GPU is no PCI device.
_NVIDIA = _Maker(
    gpu="NVIDIA GPU",
    platform="CUDA",
    nodes=("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu[0-9]*"),
    pci=("10de/03",),
    driver="proc/driver/nvidia/version",
    driver_hint="install the NVIDIA driver; `nvidia-smi` shows when it works",
    container_hint="start it with its GPUs: docker run --gpus all",
)
_AMD = _Maker(
    gpu="AMD GPU",
    platform="ROCm",
    nodes=("/dev/kfd", "/dev/dxg"),
    pci=("1002/03", "1002/12"),
    driver="sys/module/amdgpu/initstate",
    driver_hint="install the amdgpu driver; `rocminfo` shows when it works",
    container_hint="start it with its GPUs: docker run --device /dev/kfd --device /dev/dri",
)

_GET_STARTED = "https://pytorch.org/get-started/locally/"

BACKEND = Backend(
    name="cuda",
    priority=200,
    device_type="cuda",
    vendor_import="torch",
    accelerator="accel_cuda.accelerator:CUDAAccelerator",
    description="NVIDIA GPUs, and AMD GPUs in ROCm builds of torch",
    url="https://pytorch.org/docs/stable/cuda.html",
    install_hint=f"install torch with CUDA or ROCm: {_GET_STARTED}",
    requires=("torch>=2.6",),
    device_nodes=tuple(dict.fromkeys(_NVIDIA.nodes + _AMD.nodes)),
    pci_ids=_NVIDIA.pci + _AMD.pci,
    # In ROCm builds the accelerator answers with ROCm's own; only one of them may be written.
    visible_devices=("CUDA_VISIBLE_DEVICES",),
    visible_devices_grammar="cuda",
    # Not all of CUDA_*: which devices are visible is each node's own affair. RCCL reads NCCL_* as well.
    export_envs=("NCCL", "TORCH_NCCL", "RCCL", "CUDA_DEVICE_", "CUDA_LAUNCH_BLOCKING"),
    communication_backend="gloo" if sys.platform == "win32" else "nccl",
    compile_backend="inductor",
)


@hookimpl
def accel_backends() -> Backend:
    """The one backend of this plugin."""
    return BACKEND


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Whether torch.cuda is another vendor's, and what can be said against it without importing torch."""
    usurper = _impersonator()
    if usurper:
        return ProbeResult(
            usable=False,
            reason=f"torch.cuda is impersonated by {usurper}",
            hint=f"choose that vendor's own backend, or do not load {usurper}",
            stands_aside=True,
        )
    build = accel_core.torch_build()
    if build is None or _is_running():
        return None  # then neither files nor the environment tell what is so
    return _obstacle(backend, build, os.environ)


#: What every impersonation of torch.cuda has to replace.
_KEY_FUNCTIONS = ("is_available", "device_count", "current_device", "set_device", "synchronize")
#: Packages that put functions around torch.cuda's with a CUDA device still behind: Hugging Face's ZeroGPU.
_HARMLESS = ("torch", "spaces")


def _impersonator() -> str:
    """The module that put functions of its own into torch.cuda; empty where none did.

    So do torch_supa's autoload, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration`, and
    torch.cuda then reports a device that is not CUDA's.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if isinstance(cuda, ModuleType) and cuda.__name__ != "torch.cuda":
        return cuda.__name__
    for name in _KEY_FUNCTIONS:
        function = getattr(cuda, name, None)
        while isinstance(function, partial):
            function = function.func
        # The globals first: functools.wraps copies `__module__` from the function that it hides.
        origin = getattr(function, "__globals__", {}).get("__name__") or getattr(function, "__module__", None)
        if origin and origin.partition(".")[0] not in _HARMLESS:
            return str(origin)
    return ""


def _is_running() -> bool:
    """Whether torch has started CUDA in this process."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _obstacle(
    backend: Backend, build: accel_core.TorchBuild, environ: Mapping[str, str], root: str = "/"
) -> ProbeResult | None:
    """Why `build` can have no device here, as far as files and variables tell; `None` where they do not.

    Tells a torch without CUDA from a missing driver, a missing device and a hidden one.
    """
    if not (build.cuda or build.hip):
        reason = f"torch {build.version} is {'an XPU' if build.xpu else 'a CPU'} build, without CUDA and ROCm"
        return ProbeResult(usable=False, reason=reason, hint=backend.install_hint)
    for variables in _visibility(bool(build.hip)):
        hidden = accel_core.hidden_by(replace(backend, visible_devices=variables), environ)
        if hidden:
            hint = f"unset {hidden.partition('=')[0]}, or name in it the devices to use"
            return ProbeResult(usable=False, reason=hidden, hint=hint, devices=0)
    return _missing(backend, build, root)


def _visibility(rocm: bool) -> tuple[tuple[str, ...], ...]:
    """Groups of variables, of which each filters on its own; in a group the first that is set counts."""
    if rocm:
        return ("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return (("CUDA_VISIBLE_DEVICES",),)


def _missing(backend: Backend, build: accel_core.TorchBuild, root: str) -> ProbeResult | None:
    """No device of the right maker, no driver, or a container without its devices."""
    maker = _AMD if build.hip else _NVIDIA
    found = accel_core.evidence(replace(backend, device_nodes=maker.nodes, pci_ids=maker.pci), root)
    if found is None or found.nodes:
        return None
    if not found:
        reason = f"torch {build.version} is a {maker.platform} build, and this machine has no {maker.gpu}"
        return ProbeResult(usable=False, reason=reason, hint=backend.install_hint, devices=0)
    if not Path(root, maker.driver).exists():
        reason = f"an {maker.gpu} is on the bus ({found}), but its driver is not loaded"
        return ProbeResult(usable=False, reason=reason, hint=maker.driver_hint, devices=0)
    if any(Path(root, mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        reason = f"the host has an {maker.gpu} ({found}), but this container has no {maker.nodes[0]}"
        return ProbeResult(usable=False, reason=reason, hint=maker.container_hint, devices=0)
    return None  # NVIDIA's driver makes its nodes at the first use


#: What an error's text says, and what the user can do about it; the first that fits counts.
_HINTS = (
    (r"not compiled with cuda|cuda functions? .*unavailable", BACKEND.install_hint),
    (r"driver on your system is too old|insufficient for cuda runtime|cuda_error_insufficient_driver",
     f"update the NVIDIA driver, or install torch for an older CUDA: {_GET_STARTED}"),
    (r"found no nvidia driver|libcuda\.so|cuda_error_stub_library", _NVIDIA.driver_hint),
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
     f"this torch has no kernels for this GPU: install a build that has: {_GET_STARTED}"),
    (r"cuda unknown error|cuda_error_unknown",
     "often after suspend: `modprobe -r nvidia_uvm && modprobe nvidia_uvm`, or reboot"),
    (r"out of memory|cuda_error_out_of_memory",
     "`nvidia-smi` shows which processes hold the device's memory"),
    (r"lib(cu(dart|blas|dnn|fft|rand|solver|sparse|pti|file)|nccl|nvrtc|nvjitlink|nvshmem)[\w\-]*\.so",
     "reinstall torch with its nvidia-* packages, and start without an LD_LIBRARY_PATH to other ones"),
    (r"lib(amdhip|hip|roc|rccl|miopen|hsa|amd_smi)[\w\-]*\.so",
     "install the ROCm version that this torch was built for"),
)  # fmt: skip


@hookimpl
def accel_explain(backend: Backend, error: BaseException) -> str | None:
    """The next step after a known error of torch.cuda, of the driver or of a library."""
    return accel_core.hint_for(error, _HINTS)
