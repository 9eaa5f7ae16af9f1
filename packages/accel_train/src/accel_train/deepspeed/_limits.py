"""List the features that DeepSpeed lacks on a device that it does not support, for a report at activation.

In a few places, DeepSpeed compares the names of devices and communication backends with fixed lists. Ordinary
training does not reach these places, but the features below do.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from accel_core import Accelerator, TorchAccelerator
from accel_train.deepspeed import _release

__all__ = ["missing_features"]


class _RestrictedFeature(NamedTuple):
    """A feature that DeepSpeed has only for some devices or communication backends."""

    #: The path of DeepSpeed's module that compares names. A release without the module does not restrict the
    #: feature.
    module: str
    #: The names of devices or of communication backends for which DeepSpeed has the feature.
    supported_names: tuple[str, ...]
    #: The kind of `supported_names`: `"device"` or `"communication"`.
    name_kind: str
    #: The sentence that reports the feature's absence for any other name.
    sentence: str


_RESTRICTED_FEATURES = (
    _RestrictedFeature(
        "runtime/fp16/onebit", ("nccl", "hccl"), "communication",
        "1-bit Adam, 1-bit LAMB and 0/1 Adam send compressed values only over nccl, hccl or mpi: "
        'set "comm_backend_name" to "mpi", or use another optimizer',
    ),
    _RestrictedFeature(
        "runtime/superoffload", ("cuda",), "device",
        "SuperOffload (offload_optimizer with super_offload) raises an error, because it needs CUDA",
    ),
    _RestrictedFeature(
        "runtime/swap_tensor/aio_config.py", ("cuda",), "device",
        "GPUDirect storage (aio with use_gds) raises an error, because it needs CUDA",
    ),
    _RestrictedFeature(
        "compile/util.py", ("cuda",), "device",
        'DeepCompile ("compile": {"deepcompile": true}) is off, because it needs CUDA',
    ),
    _RestrictedFeature(
        "inference/engine.py", ("cuda",), "device",
        "device graphs in inference (enable_cuda_graph) are off, because they need CUDA",
    ),
    _RestrictedFeature(
        "model_implementations/features/cuda_graph.py", ("cuda",), "device",
        "the diffusers and CLIP containers of DeepSpeed's inference need CUDA, because they call torch.cuda",
    ),
)  # fmt: skip


def missing_features(
    accelerator: Accelerator, missing_members: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return a sentence for each feature that the installed DeepSpeed does not support on `accelerator`.

    `missing_members` lists the members of DeepSpeed's abstract accelerator class that `accelerator` lacks.
    """
    deepspeed = _release.package_folder()
    names = {
        "device": accelerator.device_name(),
        "communication": accelerator.communication_backend_name(),
    }
    sentences = []
    for feature in _RESTRICTED_FEATURES:
        is_supported = names[feature.name_kind] in feature.supported_names
        if not is_supported and _has_module(deepspeed, feature.module):
            sentences.append(feature.sentence)
    if not _has_default_generators(accelerator):
        sentences.append(
            "DeepSpeed's activation checkpointing needs the vendor's default_generators to restore the "
            f"random state, but torch.{names['device']} lacks them: use torch.utils.checkpoint instead"
        )
    for _name, difference in accelerator.backend.known_differences:
        sentences.append(difference)
    if missing_members:
        sentences.append(
            "the installed DeepSpeed may call members of the accelerator that accel-core lacks: "
            f"{', '.join(missing_members)}. Next step: update accel-core, or report these members"
        )
    return tuple(sentences)


def _has_default_generators(accelerator: Accelerator) -> bool:
    """Return whether `accelerator.default_generator()` returns a generator, without starting the device."""
    implementation = getattr(type(accelerator), "default_generator", None)
    if implementation is not TorchAccelerator.default_generator:
        return True  # The vendor's class has a method of its own.
    device_module = getattr(accelerator, "device_module", None)
    random_module = getattr(device_module, "random", None)
    return hasattr(device_module, "default_generators") or hasattr(
        random_module, "default_generators"
    )


def _has_module(deepspeed: Path | None, module: str) -> bool:
    """Return whether DeepSpeed's package folder contains the file or the package at the path `module`."""
    if deepspeed is None:
        return False
    path = deepspeed / module
    if path.is_dir():
        return any(path.glob("*.py"))
    return path.is_file()
