"""Features that DeepSpeed lacks on a device it does not know, reported at activation.

In a few places DeepSpeed compares the names of devices and of communication backends with lists of its own.
Training does not use these places; the features below do.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from accel_core import Accelerator, TorchAccelerator
from accel_train.deepspeed import _installed

__all__ = ["limits"]


class _Feature(NamedTuple):
    """A feature that DeepSpeed gives to some names only."""

    #: The module that compares; where a release has none, there is nothing to say.
    module: str
    #: The names it knows, of devices or of communication backends.
    names: tuple[str, ...]
    of: str
    sentence: str


_FEATURES = (
    _Feature(
        "runtime/fp16/onebit", ("nccl", "hccl"), "communication",
        "1-bit Adam, 1-bit LAMB and 0/1 Adam compress over nccl, hccl or mpi: "
        'set "comm_backend_name" to "mpi", or use another optimizer',
    ),
    _Feature(
        "runtime/superoffload", ("cuda",), "device",
        "SuperOffload (offload_optimizer with super_offload) raises an error: it needs CUDA",
    ),
    _Feature(
        "runtime/swap_tensor/aio_config.py", ("cuda",), "device",
        "GPUDirect storage (aio with use_gds) raises an error: it needs CUDA",
    ),
    _Feature(
        "compile/util.py", ("cuda",), "device",
        'DeepCompile ("compile": {"deepcompile": true}) is off: it needs CUDA',
    ),
    _Feature(
        "inference/engine.py", ("cuda",), "device",
        "device graphs in inference (enable_cuda_graph) are off: they need CUDA",
    ),
    _Feature(
        "model_implementations/features/cuda_graph.py", ("cuda",), "device",
        "the diffusers and CLIP containers of DeepSpeed's inference call torch.cuda themselves",
    ),
)  # fmt: skip


def limits(accelerator: Accelerator, missing: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return a sentence for each feature that the installed DeepSpeed does not have on `accelerator`.

    `missing` names members of DeepSpeed's abstract class that `accelerator` lacks.
    """
    home = _installed.folder()
    names = {
        "device": accelerator.device_name(),
        "communication": accelerator.communication_backend_name(),
    }
    sentences = [
        f.sentence
        for f in _FEATURES
        if names[f.of] not in f.names and _has(home, f.module)
    ]
    if not _has_generators(accelerator):
        sentences.append(
            "activation checkpointing restores the random state through the vendor's default_generators, "
            f"which torch.{names['device']} lacks: use torch.utils.checkpoint instead"
        )
    sentences += [words for _, words in accelerator.backend.computes_otherwise]
    if missing:
        sentences.append(
            f"this DeepSpeed may call members that accel-core lacks: {', '.join(missing)}. "
            "Update accel-core, or report it"
        )
    return tuple(sentences)


def _has_generators(accelerator: Accelerator) -> bool:
    """Whether `default_generator()` has something to give; found out without starting the device."""
    if (
        getattr(type(accelerator), "default_generator", None)
        is not TorchAccelerator.default_generator
    ):
        return True
    module = getattr(accelerator, "device_module", None)
    return any(
        hasattr(place, "default_generators")
        for place in (module, getattr(module, "random", None))
    )


def _has(home: Path | None, module: str) -> bool:
    if home is None:
        return False
    path = home / module
    return path.is_file() or (path.is_dir() and any(path.glob("*.py")))
