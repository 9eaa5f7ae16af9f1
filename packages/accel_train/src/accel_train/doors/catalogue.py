"""Frameworks, and what makes each use a device that it does not know.

This is data only: `accel doors` shows it. Importing this module imports no framework.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DOORS", "OF_DEVICE", "Door"]


class Door(NamedTuple):
    """A framework, and how a program makes it use a device that it does not know."""

    #: As people write it: `"DeepSpeed"`.
    name: str
    #: The distribution that brings it, as on PyPI.
    distribution: str
    #: The page to read on, in the repository.
    url: str
    #: Our module; empty where there is none.
    adapter: str = ""
    #: Entry points by which the framework loads the adapter; empty where a program
    #: calls it.
    group: str = ""
    #: What does not work, as a clause.
    half: str = ""
    #: Device types, or backends by name, that it drives by itself, besides the CPU.
    own: tuple[str, ...] = ()
    #: The integration that `ACCEL_INTEGRATIONS=auto` prepares, by which it then trains.
    prepared: str = ""
    #: Its module, and the line that puts a program on the device; empty where the
    #: framework needs none.
    module: str = ""
    line: str = ""


_TRAINERS = "docs/howto/trainers.md"
_FRAMEWORKS = "docs/howto/frameworks.md"
_OF_TRANSFORMERS = ("cuda", "mps", "xpu", "mlu", "musa", "npu", "hpu", "neuron", "tpu")

_DEVICE = "device=accel_core.get_accelerator().device()"
_LIGHTNING = (
    "Trainer(**accel_train.lightning.trainer_options()), "
    "Fabric(**accel_train.lightning.fabric_options())"
)
#: Modules of frameworks that take a device: their name, and the line.
OF_DEVICE = (
    (
        "sentence_transformers",
        "sentence-transformers",
        f"SentenceTransformer(..., {_DEVICE})",
    ),
    ("transformers.pipelines", "Transformers", f"pipeline(..., {_DEVICE})"),
    ("stable_baselines3", "Stable-Baselines3", _DEVICE),
)

DOORS = (
    # A program calls these adapters.
    Door(
        "DeepSpeed",
        "deepspeed",
        "docs/howto/deepspeed.md",
        adapter="accel_train.deepspeed",
        own=("cuda", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa", "klxpu"),
        prepared="deepspeed",
        module="deepspeed",
        line="accel_train.deepspeed.activate() before deepspeed.initialize()",
    ),
    Door(
        "Lightning",
        "lightning",
        _TRAINERS,
        adapter="accel_train.lightning",
        half="its DeepSpeed strategy accepts CUDA alone",
        own=("cuda", "mps"),
        prepared="lightning",
        module="lightning",
        line=_LIGHTNING,
    ),
    Door(
        "PyTorch Lightning",
        "pytorch-lightning",
        _TRAINERS,
        adapter="accel_train.lightning",
        half="its DeepSpeed strategy accepts CUDA alone",
        own=("cuda", "mps"),
        prepared="lightning",
        module="pytorch_lightning",
        line=_LIGHTNING,
    ),
    Door(
        "Accelerate",
        "accelerate",
        _TRAINERS,
        adapter="accel_train.accelerate",
        half="fp16 and device_map go by its lists of devices",
        own=("cuda", "mps", "mlu", "sdaa", "musa", "npu", "hpu", "xpu", "neuron"),
        prepared="accelerate",
        module="accelerate",
        line="accel_train.accelerate.partial_state() before accelerate.Accelerator()",
    ),
    Door(
        "Transformers",
        "transformers",
        _TRAINERS,
        adapter="accel_train.transformers",
        half="the device's random numbers are missing in its checkpoints",
        own=_OF_TRANSFORMERS,
        prepared="accelerate",
        module="transformers.trainer",
        line="class Arguments(accel_train.transformers.AcceleratorArguments, "
        "TrainingArguments)",
    ),
    Door(
        "TRL",
        "trl",
        _TRAINERS,
        adapter="accel_train.transformers",
        half="as in Transformers, whose Trainer it uses",
        own=_OF_TRANSFORMERS,
        prepared="accelerate",
    ),
    Door(
        "PEFT",
        "peft",
        _TRAINERS,
        adapter="accel_train.transformers",
        half="saved adapters are loaded to the CPU first",
        own=("cuda", "mps", "mlu", "xpu", "npu"),
        prepared="accelerate",
    ),
    Door(
        "NeMo",
        "nemo-toolkit",
        _FRAMEWORKS,
        adapter="accel_train.lightning",
        half="restore_from loads to the CPU first",
        own=("cuda",),
    ),
    # Frameworks load these adapters by an entry point of ours.
    Door(
        "torch.compile",
        "torch",
        "docs/howto/compile.md",
        adapter="accel_train.doors.dynamo",
        group="torch_dynamo_backends",
        own=("cuda", "xpu", "mps"),
    ),
    Door(
        "torch.distributed",
        "torch",
        _FRAMEWORKS,
        adapter="accel_train.doors.torch_distributed",
        group="torch.distributed.backends",
        own=("cuda", "xpu", "npu", "hpu", "mlu", "sdaa"),
    ),
    Door(
        "verl",
        "verl",
        _FRAMEWORKS,
        adapter="accel_train.doors.verl",
        group="verl.plugins",
        half="PPO counts Ray's GPU and NPU alone; no training on the CPU",
        own=("cuda", "npu"),
    ),
    Door(
        "axolotl",
        "axolotl",
        _FRAMEWORKS,
        adapter="accel_train.doors.axolotl",
        group="axolotl.plugins",
        half="fp16; FSDP, and packing in several ranks, were not tried",
        own=("cuda", "mps", "npu"),
    ),
    Door(
        "LMCache",
        "lmcache",
        _FRAMEWORKS,
        adapter="accel_train.doors.lmcache",
        group="lmcache.device_plugins",
        half="handles between processes and cache contexts",
        own=("cuda", "hpu", "musa", "neuron", "npu", "rbln", "xpu"),
    ),
    Door(
        "bitsandbytes",
        "bitsandbytes",
        _FRAMEWORKS,
        adapter="accel_train.doors.bitsandbytes",
        group="bitsandbytes.backends",
        half="no 8-bit optimizer in plain torch",
        own=("cuda", "xpu", "hpu"),
    ),
    # A vendor derives from this one.
    Door(
        "vLLM",
        "vllm",
        _FRAMEWORKS,
        adapter="accel_train.doors.vllm",
        half="attention, kernels and workers are those of a vendor's own Platform",
        own=("cuda", "xpu", "tpu"),
    ),
    # These take a device, and need no adapter.
    Door(
        "fastai",
        "fastai",
        _FRAMEWORKS,
        half="else it takes CUDA, MPS or the CPU, silently",
        own=("cuda", "mps"),
        module="fastai.learner",
        line=f"DataLoaders(..., {_DEVICE})",
    ),
    Door(
        "Ignite",
        "pytorch-ignite",
        _FRAMEWORKS,
        half="idist.device() is the CPU, silently",
        own=("cuda",),
        module="ignite.engine",
        line=f"create_supervised_trainer(..., {_DEVICE})",
    ),
)
