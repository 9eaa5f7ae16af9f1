"""Tecorigin cards for accel-core: the declaration of the backend `sdaa`, and the next
steps after known errors.

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

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        r"lib(sdaa|sdpti|tccl|tcml|teco)\w*\.so",
        "run `source /opt/tecoai/setvars.sh` in the shell that starts Python",
    ),
    (
        r"undefined symbol|torch_sdaa\._c\b",
        "torch_sdaa is incompatible with this torch or TecoToolKit: run `accel setup sdaa`",
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
    # accel-core needs torch.accelerator, which torch 2.6 introduced. No version of
    # torch_sdaa is required, because its versions follow several schemes (1.7.0,
    # 20250827.8.35.dev0, 3.2.1b0).
    requires=("torch>=2.6",),
    communication_backend="tccl",
    compile_backend="teco_inductor",
    hardware=Hardware(
        name="Tecorigin SDAA card",
        platforms=("linux",),
        # Each card has one node and exposes four devices. Not /dev/sdaa*, which are SCSI
        # disks. Unverified: torch_sdaa reports the node, but no document about the
        # driver mentions it.
        nodes=("/dev/tcaicard[0-9]*",),
        # PCI ids and the files of TecoDriver have no public source.
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
    """Return the declaration of the backend `sdaa`, for Tecorigin cards."""
    return BACKEND
