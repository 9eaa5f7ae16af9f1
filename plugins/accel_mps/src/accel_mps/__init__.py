"""Apple GPUs for accel-core: what the backend `mps` is, and what its known failures
mean.

Importing this module does not import torch.
"""

from __future__ import annotations

from accel_core import Backend, Environment, Hardware, hookimpl

__all__ = ["BACKEND"]

#: What an error's text says, and what the user can do about it; the first that fits
#: counts.
_HINTS = (
    (
        (
            r"not (currently )?(implemented|supported) for the mps device|not "
            r"implemented for 'mps'"
        ),
        (
            "set PYTORCH_ENABLE_MPS_FALLBACK=1 before torch is imported: the CPU then does what Metal cannot"
        ),
    ),
    (
        r"mps backend out of memory|insufficient memory",
        (
            "make the batch smaller, or raise PYTORCH_MPS_HIGH_WATERMARK_RATIO (0.0 takes the limit away)"
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
            "install torch for Apple silicon, with a Python for arm64: `file $(which python3)` must say so"
        ),
    ),
)

#: It saves the random state of devices whose module is `_initialized`; torch.mps has no
#: such name.
_OTHERWISE = (
    (
        "compute.randomness.checkpointing_draws_the_same",
        (
            "torch.utils.checkpoint draws another dropout mask in the backward pass, "
            "so the gradient is wrong: keep dropout out of what is checkpointed, or "
            "set its probability to 0"
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
    # torch has no collectives of Metal; gloo takes no tensors of it.
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
    known_differences=_OTHERWISE,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the one backend of this plugin."""
    return BACKEND
