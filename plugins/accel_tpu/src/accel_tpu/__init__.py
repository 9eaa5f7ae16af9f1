"""Google TPUs for accel-core, through TorchTPU: what the backend `tpu` is, and what to
do when it fails.

Importing this module imports neither torch nor torch_tpu.
"""

from __future__ import annotations

from dataclasses import replace

from accel_core import (
    Backend,
    Environment,
    Hardware,
    ProbeResult,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    hookimpl,
)
from accel_tpu.library import LIBRARY, fault, own_library

__all__ = ["BACKEND"]

#: What an error's text says, and what the user can do about it; the first that fits
#: counts.
_HINTS = (
    # libtpu's lock, /tmp/libtpu_lockfile: google/jax#10192, openxla/xla#4666.
    (
        r"tpu is already in use|libtpu_lockfile|already in used? by another process",
        (
            "`sudo lsof -w /dev/accel*` names the process that has it; without one, "
            "remove /tmp/libtpu_lockfile"
        ),
    ),
    (
        r"pjrt api version|pjrt_api.*version",
        (
            "unset TPU_LIBRARY_PATH, whose library is of another PJRT version, and install torch-tpu's libtpu"
        ),
    ),
    (
        "registerdynamicpjrtplugin",
        "set TPU_LIBRARY_PATH to a PJRT library, or unset it",
    ),
    ("no module named 'libtpu'|libtpu not found", "accel setup tpu"),
    # torch_tpu/_versioned_so_loader.py: glue for each minor version of torch from 2.11
    # to 2.15.
    (
        r"undefined symbol|no glue|torch_tpu\._internal",
        "torch-tpu does not fit this torch: accel setup tpu",
    ),
    (
        "privateuse1",
        "another vendor's package was imported first: use a process of its own",
    ),
    (
        "internal to torchtpu",
        "call torch.accelerator's function, which accel-core does",
    ),
    ("inductor.*tpu|tpu.*inductor", "use get_compile_backend(), which is 'tpu'"),
)

#: Seen with torch_tpu 0.2.0 on XLA's library for the CPU.
_OTHERWISE = (
    (
        "compute.randomness.checkpointing_draws_the_same",
        (
            "torch.utils.checkpoint draws another dropout mask in the backward pass, "
            "so the gradient is wrong: keep dropout out of what is checkpointed, or "
            "set its probability to 0"
        ),
    ),
    (
        "compute.forms.layers",
        (
            "batch norm leaves its running statistics as they were, so evaluation is "
            "wrong: give it track_running_stats=False, or take layer norm or group norm"
        ),
    ),
    (
        "compute.numbers.nan_and_infinity",
        (
            "maximum, minimum, clamp and gelu lose NaN: look for NaN before they are called"
        ),
    ),
    (
        "compute.reductions.nan_in_every_reduction",
        (
            "max, min, amax, amin, aminmax, argmax and argmin lose NaN: look for NaN before they are called"
        ),
    ),
    (
        "compute.forms.zeros_and_infinities",
        "x + 0.0 leaves -0.0 as it is: do not read the sign of a zero",
    ),
)

BACKEND = Backend(
    name="tpu",
    priority=350,
    device_type="tpu",
    vendor_import="torch_tpu",
    accelerator="accel_tpu.accelerator:TPUAccelerator",
    description="Google TPUs, through TorchTPU and libtpu",
    url="https://github.com/google-pytorch/torch_tpu",
    install_hint="accel setup tpu",
    # torch_tpu 0.2.0, METADATA: Requires-Dist.
    requires=("torch>=2.11,<=2.15.0",),
    communication_backend="tpu_dist",
    compile_backend="tpu",
    hardware=Hardware(
        name="Google TPU",
        platforms=("linux",),
        # Gaudi has /dev/accel* too, and any device that is passed through has
        # /dev/vfio/*.
        shared_nodes=("/dev/accel[0-9]*", "/dev/vfio/[0-9]*"),
        # torch_tpu/_internal/utils/hardware.py: v4, v5p, v5e, v6e, v7. Not all of 1ae0,
        # as network cards have it too.
        pci_ids=("1ae0:005e", "1ae0:0062", "1ae0:0063", "1ae0:006f", "1ae0:0076"),
    ),
    visibility=Visibility(
        # Both are in libtpu 0.0.52. TPU_VISIBLE_DEVICE_PATHS wins over them; its
        # grammar is not documented.
        variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
    ),
    request=ResourceRequest(
        # cloud.google.com/tpu/docs/run-in-container.
        docker="--privileged --net=host",
        # cloud.google.com/kubernetes-engine/docs/concepts/tpus.
        # Ray 2.60.0, ray/_private/accelerators/tpu.py.
        kubernetes="google.com/tpu",
        ray="TPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS",
    ),
    torch_integration=TorchIntegration(private_use1=True),
    environment=Environment(forward=("TPU_", "TORCH_TPU", "PJRT_", "XLA_", "LIBTPU_")),
    hints=_HINTS,
    known_differences=_OTHERWISE,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the one backend of this plugin; with a library in place of libtpu, it
    needs no TPU.
    """
    if own_library() is None:
        return BACKEND
    return replace(
        BACKEND,
        hardware=replace(BACKEND.hardware, pci_ids=(), shared_nodes=()),
        communication_backend="staged",
    )


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Check the PJRT library that the user names: TorchTPU ends the process if it
    cannot load it.
    """
    library = own_library()
    if backend.name != BACKEND.name or library is None:
        return None
    reason = fault(library)
    if reason:
        return ProbeResult(
            False,
            f"{LIBRARY}={str(library)!r} {reason}",
            f"unset {LIBRARY}, so that libtpu is loaded, or name a PJRT library: accel try tpu sets it",
        )
    return ProbeResult(
        True, f"TorchTPU on {library.name} ({LIBRARY}) in place of libtpu"
    )
