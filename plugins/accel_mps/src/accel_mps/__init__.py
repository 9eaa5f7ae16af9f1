"""Apple GPUs for accel-core: the declaration of the backend `mps`, and the next steps
after known errors.

Importing this module does not import torch.
"""

from __future__ import annotations

from accel_core import Backend, Environment, Hardware, hookimpl

__all__ = ["BACKEND"]

#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        (
            r"not (currently )?(implemented|supported) for the mps device|not "
            r"implemented for 'mps'"
        ),
        (
            "set PYTORCH_ENABLE_MPS_FALLBACK=1 before torch is imported, to run the operator "
            "on the CPU"
        ),
    ),
    (
        r"mps backend out of memory|insufficient memory",
        (
            "use a smaller batch, or raise PYTORCH_MPS_HIGH_WATERMARK_RATIO (0.0 removes the limit)"
        ),
    ),
    (r"float64|double", "use float32: Metal has no float64"),
    (
        r"bfloat16 is not supported on mps",
        "update macOS to 14 or later, or use float16",
    ),
    (r"macos (1[0-3]|\d+\.\d+)|requires macos|mpsgraph", "update macOS to 14 or later"),
    (
        r"not (built|linked|compiled) with mps|without mps|mps.*is not available|_mps_",
        (
            "install torch for Apple silicon, with a Python for arm64: "
            "`file $(which python3)` must print arm64"
        ),
    ),
)

#: torch.utils.checkpoint saves the random state of a device only if the device's module
#: has an attribute `_initialized` that is true. torch.mps has no such attribute.
_KNOWN_DIFFERENCES = (
    (
        "compute.randomness.checkpointing_draws_the_same",
        (
            "torch.utils.checkpoint draws a different dropout mask in the backward pass, "
            "so gradients are wrong: do not checkpoint dropout layers, or set their "
            "probability to 0"
        ),
    ),
)

BACKEND = Backend(
    name="mps",
    priority=500,
    device_type="mps",
    vendor_import="torch",
    accelerator="accel_mps.accelerator:MPSAccelerator",
    description="GPUs of Apple silicon, through Metal",
    url="https://pytorch.org/docs/stable/mps.html",
    install_hint="accel setup mps",
    requires=("torch>=2.6",),
    # torch has no collectives for Metal, and gloo does not accept its tensors.
    communication_backend="",
    compile_backend="inductor",
    hardware=Hardware(
        # Metal has neither device nodes nor PCI ids. A Python for x86_64 under Rosetta
        # has no Metal.
        name="Apple GPU",
        platforms=("darwin-arm64",),
    ),
    environment=Environment(forward=("PYTORCH_MPS", "PYTORCH_ENABLE_MPS_FALLBACK")),
    hints=_HINTS,
    known_differences=_KNOWN_DIFFERENCES,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `mps`, for Apple GPUs."""
    return BACKEND
