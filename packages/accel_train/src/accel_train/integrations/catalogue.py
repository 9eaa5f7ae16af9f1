"""List the supported frameworks, and how each of them can use a device that it does not support itself.

This module contains only data, which `accel frameworks` shows. Importing this module imports no framework.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FRAMEWORKS", "TAKING_A_DEVICE", "Framework"]


class Framework(NamedTuple):
    """A framework, and how a program can make it use a device that it does not support itself."""

    #: The framework's name in text, such as `"DeepSpeed"`.
    name: str
    #: The name of the framework's distribution on PyPI.
    distribution: str
    #: The path of the framework's documentation page in this repository.
    url: str
    #: accel_train's module for the framework, or an empty string if the framework needs none.
    adapter: str = ""
    #: The group of entry points by which the framework loads the adapter, or an empty string if a program
    #: calls it.
    group: str = ""
    #: A clause that names the features that do not work on such a device.
    limitation: str = ""
    #: Device types, or names of backends, that the framework itself supports, besides the CPU.
    native_devices: tuple[str, ...] = ()
    #: The integration that `ACCEL_INTEGRATIONS=auto` prepares for the framework.
    integration: str = ""
    #: The framework's module that a program imports to train, or an empty string if `usage` is empty.
    module: str = ""
    #: The line of code that makes a program use the device, or an empty string if none is needed.
    usage: str = ""


_TRAINERS_PAGE = "docs/howto/trainers.md"
_FRAMEWORKS_PAGE = "docs/howto/frameworks.md"
_TRANSFORMERS_DEVICES = (
    "cuda",
    "mps",
    "xpu",
    "mlu",
    "musa",
    "npu",
    "hpu",
    "neuron",
    "tpu",
)

_DEVICE_ARGUMENT = "device=accel_core.get_accelerator().device()"
_LIGHTNING_USAGE = (
    "Trainer(**accel_train.lightning.trainer_options()), "
    "Fabric(**accel_train.lightning.fabric_options())"
)
#: Frameworks without an adapter, whose classes take a device. Each tuple has the framework's module, its
#: name, and the argument.
TAKING_A_DEVICE = (
    (
        "sentence_transformers",
        "sentence-transformers",
        f"SentenceTransformer(..., {_DEVICE_ARGUMENT})",
    ),
    ("transformers.pipelines", "Transformers", f"pipeline(..., {_DEVICE_ARGUMENT})"),
    ("stable_baselines3", "Stable-Baselines3", _DEVICE_ARGUMENT),
)

FRAMEWORKS = (
    # A program calls these adapters.
    Framework(
        "DeepSpeed",
        "deepspeed",
        "docs/howto/deepspeed.md",
        adapter="accel_train.deepspeed",
        native_devices=(
            "cuda",
            "xpu",
            "npu",
            "mps",
            "hpu",
            "mlu",
            "sdaa",
            "supa",
            "klxpu",
        ),
        integration="deepspeed",
        module="deepspeed",
        usage="accel_train.deepspeed.activate() before deepspeed.initialize()",
    ),
    Framework(
        "Lightning",
        "lightning",
        _TRAINERS_PAGE,
        adapter="accel_train.lightning",
        limitation="Lightning's DeepSpeed strategy supports only CUDA",
        native_devices=("cuda", "mps"),
        integration="lightning",
        module="lightning",
        usage=_LIGHTNING_USAGE,
    ),
    Framework(
        "PyTorch Lightning",
        "pytorch-lightning",
        _TRAINERS_PAGE,
        adapter="accel_train.lightning",
        limitation="Lightning's DeepSpeed strategy supports only CUDA",
        native_devices=("cuda", "mps"),
        integration="lightning",
        module="pytorch_lightning",
        usage=_LIGHTNING_USAGE,
    ),
    Framework(
        "Accelerate",
        "accelerate",
        _TRAINERS_PAGE,
        adapter="accel_train.accelerate",
        limitation="fp16 and device_map work only on devices that Accelerate lists",
        native_devices=(
            "cuda",
            "mps",
            "mlu",
            "sdaa",
            "musa",
            "npu",
            "hpu",
            "xpu",
            "neuron",
        ),
        integration="accelerate",
        module="accelerate",
        usage="accel_train.accelerate.partial_state() before accelerate.Accelerator()",
    ),
    Framework(
        "Transformers",
        "transformers",
        _TRAINERS_PAGE,
        adapter="accel_train.transformers",
        limitation="checkpoints lack the device's random state",
        native_devices=_TRANSFORMERS_DEVICES,
        integration="accelerate",
        module="transformers.trainer",
        usage="class Arguments(accel_train.transformers.AcceleratorArguments, "
        "TrainingArguments)",
    ),
    Framework(
        "TRL",
        "trl",
        _TRAINERS_PAGE,
        adapter="accel_train.transformers",
        limitation="same limits as Transformers, whose Trainer TRL uses",
        native_devices=_TRANSFORMERS_DEVICES,
        integration="accelerate",
    ),
    Framework(
        "PEFT",
        "peft",
        _TRAINERS_PAGE,
        adapter="accel_train.transformers",
        limitation="saved adapters are loaded onto the CPU first",
        native_devices=("cuda", "mps", "mlu", "xpu", "npu"),
        integration="accelerate",
    ),
    Framework(
        "NeMo",
        "nemo-toolkit",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.lightning",
        limitation="restore_from() first loads the model onto the CPU",
        native_devices=("cuda",),
    ),
    # The framework loads these adapters by an entry point of accel_train.
    Framework(
        "torch.compile",
        "torch",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.dynamo",
        group="torch_dynamo_backends",
        native_devices=("cuda", "xpu", "mps"),
    ),
    Framework(
        "torch.distributed",
        "torch",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.torch_distributed",
        group="torch.distributed.backends",
        native_devices=("cuda", "xpu", "npu", "hpu", "mlu", "sdaa"),
    ),
    Framework(
        "verl",
        "verl",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.verl",
        group="verl.plugins",
        limitation="PPO needs vLLM, SGLang or TensorRT-LLM; verl cannot train on the CPU",
        native_devices=("cuda", "npu"),
    ),
    Framework(
        "axolotl",
        "axolotl",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.axolotl",
        group="axolotl.plugins",
        limitation="fp16 does not work; FSDP, and packing in several ranks, are not tested",
        native_devices=("cuda", "mps", "npu"),
    ),
    Framework(
        "LMCache",
        "lmcache",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.lmcache",
        group="lmcache.device_plugins",
        limitation="processes cannot share handles to device memory",
        native_devices=("cuda", "hpu", "musa", "neuron", "npu", "rbln", "xpu"),
    ),
    Framework(
        "bitsandbytes",
        "bitsandbytes",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.bitsandbytes",
        group="bitsandbytes.backends",
        limitation="8-bit optimizers do not work, because none is written in plain torch",
        native_devices=("cuda", "xpu", "hpu"),
    ),
    # This adapter is a base class for a vendor's class.
    Framework(
        "vLLM",
        "vllm",
        _FRAMEWORKS_PAGE,
        adapter="accel_train.integrations.vllm",
        limitation="the vendor's Platform class must supply attention, kernels and workers",
        native_devices=("cuda", "xpu", "tpu"),
    ),
    # These frameworks accept a device, and need no adapter.
    Framework(
        "fastai",
        "fastai",
        _FRAMEWORKS_PAGE,
        limitation="without this argument, fastai silently uses CUDA, MPS or the CPU",
        native_devices=("cuda", "mps"),
        module="fastai.learner",
        usage=f"DataLoaders(..., {_DEVICE_ARGUMENT})",
    ),
    Framework(
        "Ignite",
        "pytorch-ignite",
        _FRAMEWORKS_PAGE,
        limitation="idist.device() silently returns the CPU",
        native_devices=("cuda",),
        module="ignite.engine",
        usage=f"create_supervised_trainer(..., {_DEVICE_ARGUMENT})",
    ),
)
