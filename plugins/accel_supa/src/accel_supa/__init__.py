"""Biren GPUs for accel-core: the declaration of the backend `supa`, and the next steps
after known errors.

Importing this module imports neither torch nor torch_supa.
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

_ENVIRONMENT = (
    "run `source /usr/local/birensupa/all/latest/scripts/brsw_set_env.sh` in the shell "
    "that starts Python"
)

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        (
            r"lib(supa|su(blas|dnn|fft|rand|da)|bccl|biren|cu)[\w\-]*\.so|libsupart "
            r"functions"
        ),
        _ENVIRONMENT,
    ),
    (
        r"undefined symbol|torch_supa\._c\b",
        "torch_supa is incompatible with this torch: run `accel setup supa`",
    ),
    (r"out of memory", "`brsmi` shows which processes hold the device's memory"),
)

BACKEND = Backend(
    name="supa",
    priority=250,
    device_type="supa",
    vendor_import="torch_supa",
    accelerator="accel_supa.accelerator:SUPAAccelerator",
    description="Biren GPUs, through torch_supa",
    url="https://github.com/BIRENSUPA/torch-supa",
    install_hint="accel setup supa",
    # accel-core needs torch.accelerator, which torch 2.6 introduced. The fourth number of
    # torch_supa's version is the torch release that it was built for.
    requires=("torch>=2.6", "torch-supa>=1.0.0.20600"),
    communication_backend="bccl",
    compile_backend="inductor",
    hardware=Hardware(
        name="Biren GPU",
        platforms=("linux",),
        # No PCI ids: Biren's have no public source.
        nodes=("/dev/biren/card_[0-9]*",),
        # Biren's installation guide for BIRENSUPA Driver (2025), on the kernel module:
        # `modprobe biren`.
        driver_file="/sys/module/biren",
        driver_step=(
            "install BIRENSUPA Driver, run `modprobe biren`, and check the driver with `brsmi`"
        ),
    ),
    visibility=Visibility(variables=("SUPA_VISIBLE_DEVICES",), grammar="indices"),
    request=ResourceRequest(
        # BIRENSUPA/torch-supa,
        # .agents/skills/torch-supa-wiki/installation-quickstart.md.
        docker="--device /dev/biren/card_0",
        # https://gitee.com/BirenTechnology/k8s-device-plugin
        kubernetes="birentech.com/gpu",
    ),
    torch_integration=TorchIntegration(
        private_use1=True,
        # If torch autoloads torch_supa, torch.cuda has the functions of torch.supa.
        takes_over="cuda",
    ),
    environment=Environment(forward=("BCCL", "BIREN", "SUPA", "BRTB")),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `supa`, for Biren GPUs."""
    return BACKEND
