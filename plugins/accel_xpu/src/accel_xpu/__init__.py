"""Intel GPUs for accel-core: the backend `xpu`, through IPEX or through torch itself.

The backend is declared twice: IPEX (intel_extension_for_pytorch) has a higher priority
than torch itself. Importing this module imports neither torch nor Intel's packages.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
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
    package_folders,
    torch_build,
)

if TYPE_CHECKING:
    from accel_core import Check

__all__ = ["IPEX", "NATIVE", "accel_probe", "with_cpu_build_note"]

_INSTALL = "accel setup xpu"

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    # IPEX with a torch that it was not built for.
    (r"works with torch [\d.]+ only", _INSTALL),
    (r"needs to work with pytorch|^127$|'os' has no attribute 'exit'", _INSTALL),
    (r"(not compiled with|compiled without) xpu", _INSTALL),
    (
        r"out of memory|out_of_(device|host)_memory",
        "`xpu-smi ps` shows which processes hold the device's memory",
    ),
    (
        r"count is zero|no device of requested type|no xpu device",
        "check that `sycl-ls` lists the GPU, and that your user is in the group `render`",
    ),
    (
        r"lib(sycl|ze_|mkl|ccl|ur_|intel-ext)[\w\-.]*\.so|undefined symbol",
        "run `source setvars.sh` from oneAPI's folder in the shell that starts Python",
    ),
    (r"fp64 is not supported|aspect fp64", "this GPU has no float64: use float32"),
    (
        r"device_lost|native api failed",
        "read `dmesg` for the GPU's errors, and update its driver",
    ),
)

NATIVE = Backend(
    name="xpu",
    priority=790,
    device_type="xpu",
    vendor_import="torch",
    accelerator="accel_xpu.accelerator:XPUAccelerator",
    description="Intel GPUs, through torch itself",
    url="https://pytorch.org/docs/stable/notes/get_start_xpu.html",
    install_hint=_INSTALL,
    requires=("torch>=2.8",),
    communication_backend="xccl",
    hardware=Hardware(
        name="Intel GPU",
        platforms=("linux", "win32"),
        # GPUs of every vendor are in /dev/dri, so the PCI id decides; /dev/dxg is WSL2's
        # device node for GPUs of any vendor.
        nodes=("/dev/dxg",),
        shared_nodes=("/dev/dri/renderD[0-9]*",),
        pci_ids=("8086/03",),
    ),
    visibility=Visibility(variables=("ZE_AFFINITY_MASK",), grammar="level-zero"),
    request=ResourceRequest(
        # Intel's guide to oneAPI's containers, "Using Containers with the Command
        # Line".
        docker="--device /dev/dri",
        # Not Kubernetes, where the name depends on the driver: gpu.intel.com/i915 or
        # gpu.intel.com/xe. Ray 2.60.0, ray/_private/accelerators/intel_gpu.py.
        slurm="gpu",
        ray="GPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK",
    ),
    torch_integration=TorchIntegration(
        builds=("xpu",), wrapped_by=("intel_extension_for_pytorch",)
    ),
    environment=Environment(
        # Not all of ZE_* or ONEAPI_*: each node has its own visible devices.
        forward=(
            "CCL",
            "TORCH_XCCL",
            "FI_",
            "SYCL",
            "UR_",
            "ZE_FLAT",
            "ZE_ENABLE",
            "ONEAPI_ROOT",
        ),
    ),
    hints=_HINTS,
)

IPEX = replace(
    NATIVE,
    priority=800,
    vendor_import="intel_extension_for_pytorch",
    accelerator="accel_xpu.accelerator:IPEXAccelerator",
    description="Intel GPUs, through Intel Extension for PyTorch",
    url="https://intel.github.io/intel-extension-for-pytorch/",
    requires=("torch>=2.6",),
    torch_integration=replace(
        NATIVE.torch_integration,
        builds=(),
        # With another torch, importing IPEX ends the process: os._exit(127).
        same_version=("intel-extension-for-pytorch",),
    ),
)


@hookimpl
def accel_backends() -> list[Backend]:
    """Return the backend `xpu` twice: through IPEX, and through torch itself."""
    return [with_cpu_build_note(IPEX), NATIVE]


@hookimpl
def accel_probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Reject the backend through IPEX if IPEX is the CPU build.

    The backend through torch itself defers to a CUDA or ROCm device that the installed torch can use. Neither
    torch nor IPEX is imported.
    """
    is_through_torch_itself = backend.vendor_imports == ("torch",)
    if is_through_torch_itself:
        return _defer_to_cuda(others)
    if not _is_cpu_build_of_ipex():
        return None
    reason = "the installed IPEX is the CPU build, which does not support Intel GPUs"
    return ProbeResult(False, reason, backend.install_hint)


def _defer_to_cuda(others: tuple[Backend, ...]) -> ProbeResult | None:
    """Return a result that defers to a CUDA or ROCm device, or `None` if there is none.

    xpu defers if torch was also built for CUDA or ROCm, and this machine has a visible
    device of that kind, because DeepSpeed prefers CUDA. `others` contains the other
    declared backends.
    """
    # Imported here to keep discovery fast.
    from accel_core import hidden_by

    build = torch_build()
    for other in others:
        if other.device_type != "cuda":
            continue
        required_builds = other.torch_integration.builds or ("cuda", "hip")
        is_built_for_other = any(getattr(build, name, None) for name in required_builds)
        if not is_built_for_other:
            continue
        present = evidence(other)
        if present and not hidden_by(other, os.environ):
            return ProbeResult(
                False,
                f"{build} also drives {other.name} devices, which this machine has: {present}",
                "set DS_ACCELERATOR=xpu to use the Intel GPU",
                deferred=True,
            )
    return None


@hookimpl
def accel_checks(backend: Backend) -> list[Check]:
    """Return the checks of Intel's driver that apply to XPU builds of torch."""
    from accel_xpu.checks import CHECKS  # imported here to keep discovery fast

    if not backend.torch_integration.builds:
        return []  # the backend uses IPEX
    return CHECKS


def with_cpu_build_note(backend: Backend) -> Backend:
    """Return the declaration, with a note in its description if IPEX's CPU build is installed."""
    if not _is_cpu_build_of_ipex():
        return backend
    note = "the installed IPEX is the CPU build, which does not support Intel GPUs"
    return replace(backend, description=f"{backend.description}; {note}")


def _is_cpu_build_of_ipex() -> bool:
    """Return whether the installed IPEX is its build for CPUs.

    Both builds have the same name on PyPI. They differ in the names of their libraries.
    """
    libraries: list[Path] = []
    for folder in package_folders("intel_extension_for_pytorch"):
        libraries += Path(folder).glob("*/*intel-ext-pt-?pu.*")
    has_cpu_library = any("ext-pt-cpu" in library.name for library in libraries)
    has_gpu_library = any("ext-pt-gpu" in library.name for library in libraries)
    return has_cpu_library and not has_gpu_library
