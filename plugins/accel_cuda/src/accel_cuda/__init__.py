"""NVIDIA and AMD GPUs for accel-core: the backend `cuda`, through torch.cuda.

The backend is declared twice, for NVIDIA and for AMD, because a build of torch supports
only one of the two. Some vendors build torch for their own GPUs under the name of CUDA
or ROCm. If such a torch or such a GPU is present, that vendor's declaration replaces
the declaration for NVIDIA or AMD. Importing this module imports neither torch nor a
vendor's package.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from accel_core import (
    Backend,
    Environment,
    Hardware,
    ProbeResult,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    evidence,
    hookimpl,
    torch_build,
)

if TYPE_CHECKING:
    from accel_core import Check

__all__ = ["CUDA", "HYGON", "ILUVATAR", "LOOK_ALIKES", "METAX", "ROCM"]

_SETUP = "accel setup cuda"
_NVIDIA_DRIVER = "install the NVIDIA driver, and check the driver with `nvidia-smi`"

_BUSY_PATTERN = r"busy or unavailable|devices_unavailable"
_NO_DEVICE_PATTERN = (
    r"no (cuda|hip|rocm)[- ](gpus|capable device)|cuda_error_no_device|"
    r"hiperrornodevice"
)
_OUT_OF_MEMORY_PATTERN = r"out of memory|cuda_error_out_of_memory"
#: The hint for an index without a device, which applies to GPUs of every vendor.
_INVALID_INDEX_HINT = (
    r"invalid device ordinal|cuda_error_invalid_device",
    (
        "use an index below device_count(): if CUDA_VISIBLE_DEVICES is set, it renumbers the "
        "devices from 0"
    ),
)
#: Patterns of error messages, each with the user's next step. NVIDIA and AMD share the
#: table, because a torch built for one vendor also fails on a machine with the other's
#: GPU.
_HINTS = (
    _INVALID_INDEX_HINT,
    (r"not compiled with cuda|cuda functions? .*unavailable", _SETUP),
    (
        (
            r"driver on your system is too old|insufficient for cuda runtime|"
            r"cuda_error_insufficient_driver"
        ),
        (
            "update the NVIDIA driver, or install a torch that the driver supports with "
            f"`{_SETUP}`"
        ),
    ),
    (r"found no nvidia driver|libcuda\.so|cuda_error_stub_library", _NVIDIA_DRIVER),
    (
        (
            r"driver/library version mismatch|unsupported display driver|"
            r"system_driver_mismatch"
        ),
        (
            "the NVIDIA driver was updated, but the old kernel modules are still loaded: "
            "reboot, or reload the modules"
        ),
    ),
    (
        r"forward compatibility|compat_not_supported",
        (
            "the CUDA compatibility package does not support this GPU: remove it from "
            "LD_LIBRARY_PATH, or update it"
        ),
    ),
    (
        r"system not yet initialized|system_not_ready",
        "start the NVIDIA fabric manager: systemctl start nvidia-fabricmanager",
    ),
    (
        _BUSY_PATTERN,
        (
            "stop the process that uses the device exclusively, or change the compute mode, "
            "which `nvidia-smi -q -d COMPUTE` shows"
        ),
    ),
    (
        _NO_DEVICE_PATTERN,
        (
            "check that `nvidia-smi` or `rocminfo` lists the device, and that "
            "CUDA_VISIBLE_DEVICES does not hide it"
        ),
    ),
    (
        r"hip error: (invalid device function|device kernel image is invalid)",
        (
            "this torch has no kernels for this GPU: run `accel doctor` to check whether it "
            f"is the GPU inside the CPU, or run `{_SETUP}`"
        ),
    ),
    (
        r"no kernel image|no_binary_for_gpu|invalid device function",
        f"this torch has no kernels for this GPU: run `{_SETUP}`",
    ),
    (
        r"cuda unknown error|cuda_error_unknown",
        (
            "if the machine was suspended, run `modprobe -r nvidia_uvm && modprobe "
            "nvidia_uvm`, or reboot"
        ),
    ),
    (
        _OUT_OF_MEMORY_PATTERN,
        "`nvidia-smi` shows which processes hold the device's memory",
    ),
    (
        (
            r"lib(cu(dart|blas|dnn|fft|rand|solver|sparse|pti|file)|nccl|nvrtc|"
            r"nvjitlink|nvshmem)[\w\-]*\.so"
        ),
        (
            "reinstall torch with its nvidia-* packages, and remove other copies from LD_LIBRARY_PATH"
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
        # /dev/dxg is WSL2's device node for GPUs of any vendor; the Jetson's GPU is not on PCI.
        nodes=(
            "/dev/nvidia[0-9]*",
            "/dev/dxg",
            "/dev/nvhost-ctrl-gpu",
            "/dev/nvgpu/igpu[0-9]*",
        ),
        pci_ids=("10de/03",),
        # NVIDIA's driver README, on the files in /proc. Containers without GPUs have
        # them too.
        driver_file="/proc/driver/nvidia/version",
        driver_step=_NVIDIA_DRIVER,
    ),
    visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda"),
    request=ResourceRequest(
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
    torch_integration=TorchIntegration(
        builds=("cuda",),
        wrapped_by=("spaces",),  # Hugging Face's ZeroGPU
        # Kunlunxin's package: torch.cuda keeps torch's functions, on Kunlunxin's CUDA
        # runtime. vLLM-Kunlun, vllm_kunlun/platforms/kunlun.py; LMCache,
        # lmcache/v1/platform/klx_xpu.
        taken_over_by=("torch_xmlir",),
    ),
    environment=Environment(
        # Not all of CUDA_*: each node has its own visible devices. RCCL reads NCCL_* as
        # well. NCCL uses libfabric (FI_*, for EFA) and UCX.
        forward=(
            "NCCL",
            "TORCH_NCCL",
            "RCCL",
            "CUDA_DEVICE_",
            "CUDA_LAUNCH_BLOCKING",
            "PYTORCH_CUDA_ALLOC_CONF",
            "FI_",
            "UCX_",
        ),
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
        driver_step="install the amdgpu driver, and check the driver with `rocminfo`",
    ),
    visibility=replace(
        CUDA.visibility,
        # HIP also reads CUDA's variable, and ROCr filters before HIP: accel sets only
        # one of HIP's variables. https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
        variables=("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        filters=("ROCR_VISIBLE_DEVICES",),
    ),
    request=ResourceRequest(
        # https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html
        docker="--device /dev/kfd --device /dev/dri",
        # Ray 2.60.0, ray/_private/accelerators/amd_gpu.py.
        kubernetes="amd.com/gpu",
        slurm="gpu",
        apptainer="--rocm",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
    ),
    torch_integration=replace(CUDA.torch_integration, builds=("hip",)),
    environment=Environment(
        forward=(
            *CUDA.environment.forward,
            "HSA_",
            # Not all of HIP_*: each host has its own HIP_VISIBLE_DEVICES.
            "HIP_FORCE",
            "HIP_HOST",
            "HIP_LAUNCH",
            "HIP_PATH",
            "MIOPEN_",
            "PYTORCH_HIP_ALLOC_CONF",
        )
    ),
)


# --- Vendors that build torch for their GPUs under the name of CUDA or ROCm -----------

_METAX_URL = "https://developer.metax-tech.com/softnova"
_ILUVATAR_URL = "https://support.iluvatar.com/"
_HYGON_URL = "https://developer.sourcefind.cn/"


def _vendor_install_step(vendor: str, url: str) -> str:
    """Return the next step that installs a vendor's driver, SDK and torch."""
    return f"install the driver, SDK and torch from the same {vendor} release: {url}"


def _vendor_hints(
    vendor: str, url: str, *, tool: str, variable: str = "CUDA_VISIBLE_DEVICES"
) -> tuple[tuple[str, str], ...]:
    """Return the error patterns and next steps for a vendor's GPUs.

    The command `tool` lists the GPUs, and the environment variable `variable` hides them.
    """
    # Each pair is a pattern for error messages, and the next step after such an error.
    return (
        _INVALID_INDEX_HINT,
        (
            _NO_DEVICE_PATTERN,
            (
                f"check that {variable} does not hide the device, and that this command lists "
                f"the device: {tool}"
            ),
        ),
        (
            _OUT_OF_MEMORY_PATTERN,
            f"`{tool}` shows which processes hold the device's memory",
        ),
        (
            (
                r"driver|not compiled with cuda|no kernel image|"
                r"invalid device function|lib[\w\-]+\.so"
            ),
            _vendor_install_step(vendor, url),
        ),
        (
            r"no attribute 'accelerator'",
            f"install a release of {vendor}'s software with torch 2.6 or newer: {url}",
        ),
    )


# These declarations require no torch: pip would install PyTorch's build. Hints cover
# an older torch.

# gpustack/runtime has the PCI id and the node: gpustack_runtime/detector/metax.py,
# deployer/cdi/metax.py; Project-HAMi/HAMi, docs/metax-support.md, the module and the
# resource; MetaX-MACA/vLLM-metax the rest: docs/release/0.26.0/en.md (docker's options,
# MCCL_*, one process a GPU), and vllm_metax/platform.py (Ray's name and the
# visible-devices variable, which are CUDA's).
METAX = replace(
    CUDA,
    description="MetaX GPUs, which MetaX's builds of torch offer as torch.cuda",
    url=_METAX_URL,
    install_hint=_vendor_install_step("MetaX", _METAX_URL),
    requires=(),
    hardware=Hardware(
        name="MetaX GPU",
        nodes=("/dev/mxcd",),
        pci_ids=("9999",),
        driver_file="/sys/module/metax",
        driver_step="install MetaX's driver, and check the driver with `mx-smi`",
    ),
    request=ResourceRequest(
        docker="--device /dev/dri --device /dev/mxcd --group-add video",
        kubernetes="metax-tech.com/gpu",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
    ),
    environment=Environment(forward=(*CUDA.environment.forward, "MCCL", "MACA")),
    hints=(
        (
            _BUSY_PATTERN,
            (
                "another process uses the GPU: set MACA_MPS_MODE=1 to let several processes "
                "use it"
            ),
        ),
        *_vendor_hints("MetaX", _METAX_URL, tool="mx-smi"),
    ),
)

# gpustack/runtime: gpustack_runtime/detector/iluvatar.py, deployer/cdi/iluvatar.py. Of
# Deep-Spark: ix-device-plugin, pkg/config/config.go, and ix-container-toolkit,
# README.md.
ILUVATAR = replace(
    CUDA,
    description=("Iluvatar GPUs, which Iluvatar's builds of torch offer as torch.cuda"),
    url=_ILUVATAR_URL,
    install_hint=_vendor_install_step("Iluvatar", _ILUVATAR_URL),
    requires=(),
    hardware=Hardware(
        name="Iluvatar GPU",
        nodes=("/dev/iluvatar[0-9]*",),
        pci_ids=("1e3e",),
        driver_step="install Iluvatar's driver, and check the driver with `ixsmi`",
    ),
    request=ResourceRequest(
        docker="--device /dev/iluvatar0",
        kubernetes="iluvatar.com/gpu",
        podman="--device iluvatar.com/gpu=all",
    ),
    hints=_vendor_hints("Iluvatar", _ILUVATAR_URL, tool="ixsmi"),
)

# HYGON-AI/k8s-hcu-device-plugin: internal/pkg/util/types.go, hcu.go (display
# controllers and co-processors), README_EN.md. HAMi's docs/hygon-dcu-support.md has the
# address and /opt/hyhal.
HYGON = replace(
    ROCM,
    description="Hygon DCUs, which Hygon's builds of torch offer as torch.cuda",
    url=_HYGON_URL,
    install_hint=_vendor_install_step("Hygon", _HYGON_URL),
    requires=(),
    hardware=Hardware(
        name="Hygon DCU",
        nodes=("/dev/mkfd", "/dev/kfd"),
        pci_ids=("1d94/03", "1d94/0b"),
        driver_file="/sys/class/kfd",
        driver_step="install Hygon's driver, and check the driver with `hy-smi`",
    ),
    request=ResourceRequest(
        docker=(
            "--device /dev/kfd --device /dev/mkfd --device /dev/dri "
            "-v /opt/hyhal:/opt/hyhal --group-add video"
        ),
        kubernetes="hygon.com/hcu",
    ),
    hints=_vendor_hints(
        "Hygon", _HYGON_URL, tool="hy-smi", variable="HIP_VISIBLE_DEVICES"
    ),
)

#: Each declaration, by a text in the version of the vendor's torch:
#: `2.8.0+metax3.5.3.9`, `2.7.1+corex.4.4.0`, `2.10.0+das.opt1.dtk2604`.
LOOK_ALIKES = {"metax": METAX, "corex": ILUVATAR, "dtk": HYGON}


def _select_declaration(default: Backend) -> Backend:
    """Return the declaration that replaces `default` on this machine, or `default`.

    A declaration in `LOOK_ALIKES` replaces the default if its vendor's torch is
    installed, or if the machine has that vendor's GPU but not the default's.
    """
    build = torch_build()
    candidates = {
        version_text: backend
        for version_text, backend in LOOK_ALIKES.items()
        if backend.torch_integration == default.torch_integration
    }
    if build:
        for version_text, backend in candidates.items():
            if version_text in build.version:
                return backend
    for backend in candidates.values():
        has_gpu = _has_hardware_of_first_only(backend, default)
        has_default_gpu = _has_hardware_of_first_only(default, backend)
        if has_gpu and not has_default_gpu:
            return backend
    return default


def _has_hardware_of_first_only(first: Backend, second: Backend) -> bool:
    """Return whether this machine has a device node or PCI id of the first backend's hardware.

    Nodes that the second backend also declares, such as /dev/kfd, do not count.
    """
    present = evidence(first)
    if present is None:
        return False
    if present.pci:
        return True
    return any(node not in second.hardware.nodes for node in present.nodes)


# --- Hooks ---------------------------------------------------------------------------


@hookimpl
def accel_backends() -> list[Backend]:
    """Return two declarations of the backend `cuda`: for NVIDIA GPUs and for AMD GPUs.

    A declaration in `LOOK_ALIKES` may replace either.
    """
    return [_select_declaration(CUDA), _select_declaration(ROCM)]


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Reject a MetaX, Iluvatar or Hygon GPU if the installed torch is not its vendor's build."""
    for version_text, declaration in LOOK_ALIKES.items():
        if declaration.hardware != backend.hardware:
            continue
        # The version of the distribution is read, because in some of Iluvatar's builds
        # `torch.version` lacks the text.
        version = metadata.version("torch")
        if version_text not in version:
            vendor, _, _ = backend.hardware.name.partition(" ")
            reason = f"torch {version} is not {vendor}'s build"
            return ProbeResult(False, reason, backend.install_hint)
    return None


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of the NVIDIA driver and of the GPU inside an AMD CPU."""
    # Imported here to keep discovery fast.
    from accel_cuda.checks import CHECKS

    if backend.hardware != CUDA.hardware:
        return []
    return CHECKS
