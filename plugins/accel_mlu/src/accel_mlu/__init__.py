"""Cambricon MLUs for accel-core: the declaration of the backend `mlu`, and the next
steps after known errors.

Importing this module imports neither torch nor torch_mlu.
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

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        r"lib(cn|mlu)\w*\.so",
        (
            "set NEUWARE_HOME to the folder of Cambricon's Neuware, and add "
            "$NEUWARE_HOME/lib64 to LD_LIBRARY_PATH"
        ),
    ),
    (
        r"undefined symbol|_mluc",
        "torch_mlu is incompatible with this torch: run `accel setup mlu`",
    ),
    (
        r"cndev|cninit|no mlu|cnrt\w* failed",
        (
            "check that `cnmon` lists the device, and that CN_VISIBLE_DEVICES and "
            "MLU_VISIBLE_DEVICES do not hide it"
        ),
    ),
    (r"out of memory", "`cnmon` shows which processes hold the device's memory"),
)

BACKEND = Backend(
    name="mlu",
    priority=300,
    device_type="mlu",
    vendor_import="torch_mlu",
    accelerator="accel_mlu.accelerator:MLUAccelerator",
    description="Cambricon MLUs, through torch_mlu",
    url="https://github.com/Cambricon/torch_mlu",
    install_hint="accel setup mlu",
    # accel-core needs torch.accelerator, which torch 2.6 introduced.
    requires=("torch>=2.6",),
    communication_backend="cncl",
    compile_backend="inductor",
    hardware=Hardware(
        name="Cambricon MLU",
        platforms=("linux",),
        nodes=("/dev/cambricon_dev[0-9]*",),
        pci_ids=("cabc",),
        # The README of Cambricon's driver 4.20.14: `cat
        # /proc/driver/cambricon/mlus/<bus id>/information`.
        driver_file="/proc/driver/cambricon/mlus",
        driver_step="install Cambricon's driver, and check the driver with `cnmon`",
    ),
    visibility=Visibility(
        # The first that is set applies; torch_mlu reads CUDA's variable too.
        variables=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        grammar="mlu",
    ),
    request=ResourceRequest(
        # Cambricon/pytorch_modelzoo, its commands for containers.
        docker="--device /dev/cambricon_ctl --device /dev/cambricon_dev0",
        # Cambricon/cambricon-k8s-device-plugin, its README.
        kubernetes="cambricon.com/mlu",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(
        forward=("NEUWARE_HOME", "CNCL", "TORCH_CNCL", "PYTORCH_MLU", "TORCH_MLU"),
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `mlu`, for Cambricon MLUs."""
    return BACKEND
