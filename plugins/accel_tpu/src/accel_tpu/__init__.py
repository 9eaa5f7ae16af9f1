"""Google TPUs for accel-core, through TorchTPU: the declaration of the backend `tpu`, and
the next steps after known errors.

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
from accel_tpu.library import LIBRARY_VARIABLE, library_problem, selected_library

__all__ = ["BACKEND"]

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    # libtpu's lock, /tmp/libtpu_lockfile: google/jax#10192, openxla/xla#4666.
    (
        r"tpu is already in use|libtpu_lockfile|already in used? by another process",
        (
            "stop the process that uses the TPU, which `sudo lsof -w /dev/accel*` lists. If "
            "no process is listed, remove /tmp/libtpu_lockfile"
        ),
    ),
    (
        r"pjrt api version|pjrt_api.*version",
        (
            "unset TPU_LIBRARY_PATH, whose library has another PJRT version, and "
            "install the libtpu of torch-tpu"
        ),
    ),
    (
        "registerdynamicpjrtplugin",
        "set TPU_LIBRARY_PATH to a PJRT library, or unset it",
    ),
    ("no module named 'libtpu'|libtpu not found", "accel setup tpu"),
    # torch_tpu/_versioned_so_loader.py has a library for each minor version of torch from
    # 2.11 to 2.15.
    (
        r"undefined symbol|no glue|torch_tpu\._internal",
        "torch-tpu is incompatible with this torch: run `accel setup tpu`",
    ),
    (
        "privateuse1",
        "another vendor's package was imported first: use a separate process",
    ),
    (
        "internal to torchtpu",
        (
            "call the function of the same purpose in torch.accelerator or on accel's "
            "accelerator object instead"
        ),
    ),
    (
        "inductor.*tpu|tpu.*inductor",
        "pass backend=acc.get_compile_backend(), which is 'tpu'",
    ),
)

#: The differences were observed with torch_tpu 0.2.0 on XLA's library for the CPU.
_KNOWN_DIFFERENCES = (
    (
        "compute.randomness.checkpointing_draws_the_same",
        (
            "torch.utils.checkpoint draws a different dropout mask in the backward pass, "
            "so gradients are wrong: do not checkpoint dropout layers, or set their "
            "probability to 0"
        ),
    ),
    (
        "compute.forms.layers",
        (
            "batch norm does not update its running statistics, so evaluation is wrong: "
            "pass track_running_stats=False, or use layer norm or group norm"
        ),
    ),
    (
        "compute.numbers.nan_and_infinity",
        (
            "maximum, minimum, clamp and gelu do not propagate NaN: check for NaN beforehand"
        ),
    ),
    (
        "compute.reductions.nan_in_every_reduction",
        (
            "max, min, amax, amin, aminmax, argmax and argmin do not propagate NaN: check for NaN beforehand"
        ),
    ),
    (
        "compute.forms.zeros_and_infinities",
        "-0.0 + 0.0 is -0.0 instead of 0.0: do not rely on the sign of a zero",
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
        # Gaudi accelerators also have /dev/accel*, and every passed-through device has
        # /dev/vfio/*.
        shared_nodes=("/dev/accel[0-9]*", "/dev/vfio/[0-9]*"),
        # torch_tpu/_internal/utils/hardware.py: v4, v5p, v5e, v6e, v7. Not all of 1ae0,
        # which Google's network cards have too.
        pci_ids=("1ae0:005e", "1ae0:0062", "1ae0:0063", "1ae0:006f", "1ae0:0076"),
    ),
    visibility=Visibility(
        # libtpu 0.0.52 contains both names. TPU_VISIBLE_DEVICE_PATHS overrides both, but
        # its grammar is not documented.
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
    known_differences=_KNOWN_DIFFERENCES,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `tpu`, for Google TPUs.

    If the user selects a PJRT library other than libtpu, the backend requires no TPU.
    """
    if selected_library() is None:
        return BACKEND
    # The library that the user selected needs no TPU, and its processes communicate
    # through host memory.
    return replace(
        BACKEND,
        hardware=replace(BACKEND.hardware, pci_ids=(), shared_nodes=()),
        communication_backend="staged",
    )


@hookimpl
def accel_probe(backend: Backend) -> ProbeResult | None:
    """Reject a file in `TPU_LIBRARY_PATH` that cannot be read or is not a PJRT library.

    TorchTPU would abort the process.
    """
    library = selected_library()
    if backend.name != BACKEND.name or library is None:
        return None
    problem = library_problem(library)
    if problem:
        return ProbeResult(
            False,
            f"{LIBRARY_VARIABLE}={str(library)!r} {problem}",
            "unset TPU_LIBRARY_PATH to load libtpu, or set TPU_LIBRARY_PATH to the path of a "
            "PJRT library, as `accel try tpu` does",
        )
    return ProbeResult(
        True, f"TorchTPU runs on {library.name} ({LIBRARY_VARIABLE}) instead of libtpu"
    )
