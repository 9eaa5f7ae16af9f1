"""Tecorigin cards for accel-core: what the backend `sdaa` is, and the next step after
its known errors.

Importing this module imports neither torch nor torch_sdaa.
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

#: What an error's text says, and what the user can do about it; the first that fits
#: counts.
_HINTS = (
    (r"lib(sdaa|sdpti|tccl|tcml|teco)\w*\.so", "source /opt/tecoai/setvars.sh"),
    (
        r"undefined symbol|torch_sdaa\._c\b",
        "torch_sdaa does not fit this torch or its TecoToolKit: accel setup sdaa",
    ),
    (r"out of memory", "`teco-smi` shows which processes hold the device's memory"),
)

BACKEND = Backend(
    name="sdaa",
    priority=600,
    device_type="sdaa",
    vendor_import="torch_sdaa",
    accelerator="accel_sdaa.accelerator:SDAAAccelerator",
    description="Tecorigin cards, through torch_sdaa",
    url="http://docs.tecorigin.com/release/torch2.7",
    install_hint="accel setup sdaa",
    # torch.accelerator, on which accel-core builds, is there from 2.6 on. Versions of
    # torch_sdaa follow no one scheme (1.7.0, 20250827.8.35.dev0, 3.2.1b0), so none is
    # asked for.
    requires=("torch>=2.6",),
    communication_backend="tccl",
    compile_backend="teco_inductor",
    hardware=Hardware(
        name="Tecorigin SDAA card",
        platforms=("linux",),
        # One node a card, each of which is four devices. Not /dev/sdaa*: those are SCSI
        # disks. Unverified: seen in what torch_sdaa answers, in no document on the
        # driver.
        nodes=("/dev/tcaicard[0-9]*",),
        # Neither PCI ids nor a file of TecoDriver have a public source.
    ),
    visibility=Visibility(variables=("SDAA_VISIBLE_DEVICES",), grammar="indices"),
    request=ResourceRequest(
        # Tecorigin/modelzoo, its models' READMEs.
        docker="--device /dev/tcaicard0",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(forward=("TCCL", "SDAA", "TECO", "TORCH_SDAA")),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the one backend of this plugin."""
    return BACKEND
