"""Moore Threads GPUs for accel-core: the declaration of the backend `musa`, and the next
steps after known errors.

Importing this module imports neither torch nor torch_musa.
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

_DRIVER = "install Moore Threads' driver, and check the driver with `mthreads-gmi`"

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    # Errors of the driver: MooreThreads/torch_musa#50, #118 and, with a driver older
    # than the SDK, #24.
    (r"musa error: no cuda-capable device|libsrv_um_musa|pvrsrv", _DRIVER),
    (
        r"undefined symbol",
        "torch_musa is incompatible with this torch or MUSA SDK: run `accel setup musa`",
    ),
    # MooreThreads/torch_musa#5, #56, #102; its README has the two variables.
    (
        r"lib(musa|musart|mccl|mu(dnn|pti|fft|blas|rand|solver|sparse))[\w\-]*\.so",
        (
            "install the MUSA SDK, set MUSA_HOME to its folder, and add $MUSA_HOME/lib to LD_LIBRARY_PATH"
        ),
    ),
    (r"out of memory", "`mthreads-gmi` shows which processes hold the device's memory"),
)

BACKEND = Backend(
    name="musa",
    priority=290,
    device_type="musa",
    vendor_import="torch_musa",
    accelerator="accel_musa.accelerator:MUSAAccelerator",
    description="Moore Threads GPUs, through torch_musa",
    url="https://github.com/MooreThreads/torch_musa",
    install_hint="accel setup musa",
    # accel-core needs torch.accelerator, which torch 2.6 introduced. torch_musa 2.7.0 is
    # the first release for such a torch (its README), and has the version of its torch.
    requires=("torch>=2.6", "torch-musa>=2.7"),
    # DeepSpeed's pull request 8191 and flagos-ai/FlagScale name both.
    communication_backend="mccl",
    compile_backend="inductor",
    hardware=Hardware(
        name="Moore Threads GPU",
        platforms=("linux",),
        # flagos-ai's images for Moore Threads; docs.mthreads.com has the kernel module.
        nodes=("/dev/mtgpu.[0-9]*",),
        # Display controllers of vendor 1ed5 in pci.ids; the other functions are audio.
        pci_ids=("1ed5/03",),
        driver_file="/sys/module/mtgpu",
        driver_step=_DRIVER,
    ),
    # torch_musa/core/device.py names the variable; UUIDs in it have no public source.
    visibility=Visibility(variables=("MUSA_VISIBLE_DEVICES",), grammar="indices"),
    request=ResourceRequest(
        # flagos-ai's images for Moore Threads, without its container toolkit.
        docker="--device /dev/mtgpu.0 --device /dev/dri",
        # Project-HAMi/HAMi, pkg/device/mthreads/device.go, on Moore Threads' own device
        # plugin.
        kubernetes="mthreads.com/gpu",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    # MUSA_HOME and MCCL: DeepSpeed's pull request 8191; the others: torch_musa.
    environment=Environment(
        forward=("MUSA_HOME", "MCCL", "TORCH_MCCL", "PYTORCH_MUSA", "TORCH_USE_MUSA")
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `musa`, for Moore Threads GPUs."""
    return BACKEND
