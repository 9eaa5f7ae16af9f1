"""Rebellions NPUs for accel-core: the declaration of the backend `rbln`, and the next
steps after known errors.

The facts come from wheels on PyPI: torch-rbln 0.12.0 (Apache-2.0), vllm-rbln 0.12.0,
optimum-rbln 0.12.0 and backend.ai-accelerator-rebellions 26.9.6. Importing this module
imports neither torch nor torch_rbln.
"""

from __future__ import annotations

from accel_core import (
    Backend,
    Environment,
    Hardware,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    hookimpl,
)

__all__ = ["BACKEND"]

_COMPILER = (
    "install rebel-compiler from Rebellions' package index, which requires an RBLN Portal "
    "account: https://docs.rbln.ai/latest/software/rbln_pytorch/installation.html"
)

#: Patterns of error messages, each with the user's next step; the first match applies.
#: The messages come from `import torch_rbln` 0.12.0, without
#: rebel-compiler and with other libraries called librbln.so, and from its
#: libc10_rbln.so.
_HINTS = (
    (r"could not find librbln\.so|RBLN device runtime is not loaded", _COMPILER),
    (
        (
            r"RBLN ABI mismatch|Failed to load \S*librbln\.so|undefined symbol: "
            r"(_ZN4rbln|rbln_)"
        ),
        (
            "install the rebel-compiler made for your torch-rbln; "
            "`python -m torch_rbln.diagnose` prints both versions"
        ),
    ),
    (
        r"undefined symbol",
        "torch-rbln is incompatible with this torch: run `accel setup rbln`",
    ),
    (
        r"Invalid RBLN_DEVICE_MAP|RBLN_NPUS_PER_DEVICE must|RBLN_DEVICE_MAP=",
        (
            "unset RBLN_DEVICE_MAP and RBLN_NPUS_PER_DEVICE, to use each NPU as a separate "
            "device"
        ),
    ),
    (
        r"in use by another process|may be out of memory|lack of device memory",
        "`rbln-smi` shows which processes use the NPUs and their memory",
    ),
)

BACKEND = Backend(
    name="rbln",
    # Below every device that people commonly train on: torch-rbln's METADATA calls it
    # beta and not for production.
    priority=175,
    device_type="rbln",
    vendor_import="torch_rbln",
    description="Rebellions NPUs, through torch-rbln",
    url="https://docs.rbln.ai/latest/software/rbln_pytorch/overview.html",
    install_hint="accel setup rbln",
    # accel-core needs torch.accelerator, which torch 2.6 introduced. The METADATA of
    # torch-rbln pins one torch: 2.13.0+cpu for 0.12.0, 2.11.0+cpu for 0.4.0.
    requires=("torch>=2.6",),
    communication_backend="rbln-ccl",
    # torch_rbln/_internal/monkey_patches.py: rebel-compiler registers it at the first
    # torch.compile.
    compile_backend="rbln",
    hardware=Hardware(
        name="Rebellions NPU",
        platforms=("linux",),
        # vllm_rbln/v1/worker/utils.py reads the cards from /dev/rbln0 and so on.
        nodes=("/dev/rbln[0-9]*",),
        # backend.ai-accelerator-rebellions, common/plugin.py: "devices with VID 1eff".
        pci_ids=("1eff",),
        # vllm_rbln/v1/worker/utils.py, `RBLN_SYSFS_CLASS_DIR`; rbln-smi is in the errors
        # of optimum-rbln.
        driver_file="/sys/class/rebellions",
        driver_step="install the RBLN Driver, and check the driver with `rbln-smi`",
    ),
    visibility=Visibility(
        # Both names are in libc10_rbln.so. vllm_rbln/platform/__init__.py: the runtime
        # prefers RBLN_DEVICES.
        variables=("RBLN_DEVICES", "RBLN_VISIBLE_DEVICES"),
        grammar="indices",
    ),
    request=ResourceRequest(
        # backend.ai-accelerator-rebellions, common/plugin.py: a container has both nodes.
        docker="--device /dev/rbln0 --device /dev/rsd0",
        # https://docs.rbln.ai/v0.11.0/software/system_management/kubernetes/device_plugin.html
        # Ray 2.60.0, ray/_private/accelerators/rbln.py.
        kubernetes="rebellions.ai/npu",
        ray="RBLN",
        ray_noset="RAY_EXPERIMENTAL_NOSET_RBLN_RT_VISIBLE_DEVICES",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(
        # Not all of RBLN_*: RBLN_LOCAL_IP and RBLN_RDMA_IP belong to one host
        # (torch_rbln/_internal/rdma_env.py).
        forward=("TORCH_RBLN", "RBLN_NPUS_PER_DEVICE", "RBLN_ROOT_IP", "RCCL_PORT_GEN"),
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `rbln`, for Rebellions NPUs."""
    return BACKEND
