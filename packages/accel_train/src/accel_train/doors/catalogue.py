"""Frameworks, how each can use a device that it does not know, and what accel-train does for it.

This is data only: `accel doors` and the documents show it. Importing this module imports no framework.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ANY", "DOORS", "OF_DEVICE", "Door"]

#: In `Door.own`: whatever device torch itself reports.
ANY = "*"


class Door(NamedTuple):
    """A framework, and how it can use a device that it does not know."""

    #: As people write it: `"DeepSpeed"`.
    name: str
    #: The distribution that brings it, as on PyPI.
    distribution: str
    #: Entry points that the framework loads by itself; empty where a program calls the adapter.
    group: str
    #: Our module, or `"module:object"`; empty where there is none.
    adapter: str
    #: Releases for which the door is the one that was tested, as a version specifier.
    needs: str
    #: The release that was tested, or read.
    tested: str
    #: What stays shut, as a clause; without an adapter what another device gets. File and line are those
    #: of `tested`.
    half: str
    #: The page to read on, in the repository.
    url: str
    #: Device types, or backends by name, that the framework drives by itself, besides the CPU.
    own: tuple[str, ...] = ()
    #: The integration that `ACCEL_INTEGRATIONS=auto` prepares, and that the framework then trains by.
    prepared: str = ""
    #: Its module, and the line that puts a program on the device; empty where the framework needs none.
    module: str = ""
    line: str = ""


_PAGES = "docs/howto/"
_TRAINERS = f"{_PAGES}trainers.md"
_DOORS = f"{_PAGES}frameworks.md"
#: The ladder of Transformers' `TrainingArguments` (5.23.0, training_args.py:1920-1946), which TRL inherits.
_TRANSFORMERS = ("cuda", "mps", "xpu", "mlu", "musa", "npu", "hpu", "neuron", "tpu")

_DEVICE = "device=accel_core.get_accelerator().device()"
_TRAINER = (
    "class Arguments(accel_train.transformers.AcceleratorArguments, TrainingArguments)"
)
_LIGHTNING = (
    "Trainer(**accel_train.lightning.trainer_options()), "
    "Fabric(**accel_train.lightning.fabric_options())"
)
#: Modules of frameworks that have no door and take a device: their name, and the line.
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
    # A program activates these, in a line.
    Door(
        "DeepSpeed", "deepspeed", "", "accel_train.deepspeed", ">=0.16,<0.20", "0.19.8", "",
        f"{_PAGES}deepspeed.md",
        own=("cuda", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa", "klxpu"), prepared="deepspeed",
        module="deepspeed", line="accel_train.deepspeed.activate() before deepspeed.initialize()",
    ),
    Door(
        "Lightning", "lightning", "", "accel_train.lightning", ">=2.6,<2.7", "2.6.6",
        "its DeepSpeed strategy accepts CUDA alone (pytorch/strategies/deepspeed.py:342)",
        _TRAINERS, own=("cuda", "mps"), prepared="lightning", module="lightning", line=_LIGHTNING,
    ),
    Door(
        "PyTorch Lightning", "pytorch-lightning", "", "accel_train.lightning", ">=2.6,<2.7", "2.6.6",
        "its DeepSpeed strategy accepts CUDA alone (strategies/deepspeed.py:342)",
        _TRAINERS, own=("cuda", "mps"), prepared="lightning", module="pytorch_lightning", line=_LIGHTNING,
    ),
    Door(
        "Accelerate", "accelerate", "", "accel_train.accelerate", ">=1.15,<1.16", "1.15.0",
        "fp16 and device_map go by its lists of devices (accelerator.py:571, utils/modeling.py:757)",
        _TRAINERS, own=("cuda", "mps", "mlu", "sdaa", "musa", "npu", "hpu", "xpu", "neuron"),
        prepared="accelerate", module="accelerate",
        line="accel_train.accelerate.partial_state() before accelerate.Accelerator()",
    ),
    Door(
        "Transformers", "transformers", "", "accel_train.transformers", ">=5.23,<5.24", "5.23.0",
        "the device's random numbers are missing in its checkpoints",
        _TRAINERS, own=_TRANSFORMERS, prepared="accelerate", module="transformers.trainer", line=_TRAINER,
    ),
    Door(
        "TRL", "trl", "", "accel_train.transformers", ">=1.16,<1.17", "1.16.0",
        "as in Transformers, whose Trainer it uses", _TRAINERS, own=_TRANSFORMERS, prepared="accelerate",
    ),
    Door(
        "PEFT", "peft", "", "accel_train.transformers", ">=0.21,<0.22", "0.21.2",
        "saved adapters are loaded to the CPU first, by its list of devices (utils/other.py:144)",
        _TRAINERS, own=("cuda", "mps", "mlu", "xpu", "npu"), prepared="accelerate",
    ),
    Door(
        "NeMo", "nemo-toolkit", "", "accel_train.lightning", ">=3.0,<3.1", "3.0.0",
        "restore_from loads to the CPU first (core/connectors/save_restore_connector.py:136)",
        _DOORS, own=("cuda",),
    ),
    # These load their adapter by an entry point of ours.
    Door(
        "torch.compile", "torch", "torch_dynamo_backends", "accel_train.doors.dynamo", ">=2.6", "2.13.0",
        "", _DOORS, own=("cuda", "xpu", "mps"),
    ),
    Door(
        "torch.distributed", "torch", "torch.distributed.backends", "accel_train.doors.torch_distributed",
        ">=2.14", "2.14.1", "", _DOORS, own=("cuda", "xpu", "npu", "hpu", "mlu", "sdaa"),
    ),
    Door(
        "verl", "verl", "verl.plugins", "accel_train.doors.verl", ">=0.9,<0.10", "0.9.1",
        "PPO counts Ray's GPU and NPU alone (single_controller/ray/base.py:230); no training on the CPU "
        "(utils/distributed.py:63)",
        _DOORS, own=("cuda", "npu"),
    ),
    Door(
        "axolotl", "axolotl", "axolotl.plugins", "accel_train.doors.axolotl", ">=0.21,<0.22", "0.21.0",
        "fp16; FSDP, and packing in several ranks (utils/distributed.py:21), were not tried",
        _DOORS, own=("cuda", "mps", "npu"),
    ),
    Door(
        "LMCache", "lmcache", "lmcache.device_plugins", "accel_train.doors.lmcache", ">=0.5,<0.6", "0.5.6",
        "handles between processes and cache contexts (v1/platform/base/device_spec.py:234, 294)", _DOORS,
        own=("cuda", "hpu", "musa", "neuron", "npu", "rbln", "xpu"),
    ),
    Door(
        "bitsandbytes", "bitsandbytes", "bitsandbytes.backends", "accel_train.doors.bitsandbytes",
        ">=0.50,<0.51", "0.50.2", "no 8-bit optimizer in plain torch (backends/default/ops.py:552)",
        _DOORS, own=("cuda", "xpu", "hpu"),
    ),
    # A vendor derives from these.
    Door(
        "vLLM", "vllm", "", "accel_train.doors.vllm", ">=0.31,<0.34", "0.33.0",
        "only a vendor's own Platform can use it: attention, kernels and workers are the vendor's",
        _DOORS, own=("cuda", "xpu", "tpu"),
    ),
    # No door, or none of use.
    Door(
        "SGLang", "sglang", "sglang.srt.platforms", "", "", "0.5.23",
        "15 of 20 device members of a platform have no caller (srt/platforms/device_mixin.py:180)",
        _DOORS, own=("cuda", "xpu", "hpu", "npu"),
    ),
    Door(
        "LitGPT", "litgpt", "", "", "", "0.5.13",
        "it takes the CPU, silently; a name raises (litgpt/api.py:297-305, litgpt/finetune/lora.py:166)",
        _DOORS, own=("cuda", "mps"),
    ),
    Door(
        "fastai", "fastai", "", "", "", "2.8.12",
        "else it takes CUDA, MPS or the CPU, silently (fastai/torch_core.py:275-277)",
        _DOORS, own=("cuda", "mps"), module="fastai.learner", line=f"DataLoaders(..., {_DEVICE})",
    ),
    Door(
        "Ignite", "pytorch-ignite", "", "", "", "0.5.5",
        "idist.device() is the CPU, silently (ignite/distributed/comp_models/native.py:290-299, "
        "base.py:346-351)",
        _DOORS, own=("cuda",), module="ignite.engine", line=f"create_supervised_trainer(..., {_DEVICE})",
    ),
    Door(
        "Docling", "docling-slim", "", "", "", "2.143.0",
        "`auto` takes the CPU, silently; a name raises (docling/utils/accelerator_utils.py:50-56, "
        "docling/datamodel/accelerator_options.py:79)",
        _DOORS, own=("cuda", "mps", "xpu"),
    ),
    Door(
        "Unsloth", "unsloth", "", "", "", "2026.10.9",
        "its import raises NotImplementedError (unsloth_zoo/device_type.py:598, unsloth/device_type.py:136)",
        _DOORS, own=("cuda", "xpu", "npu"),
    ),
    Door(
        "Kernels", "kernels", "", "", "", "0.17.2",
        "a kernel that is registered for it raises; a layer without one keeps its own code "
        "(kernels/layer/repos.py:43, kernels/backends.py:216-246)",
        _DOORS, own=("cuda", "xpu", "npu", "neuron", "tpu", "mps"),
    ),
    Door(
        "torchao", "torchao", "", "", "", "0.18.0",
        "dynamic float8 and int4 raise (torchao/float8/inference.py:298, "
        "torchao/quantization/quantize_/workflows/int4/int4_tensor.py:140)",
        _DOORS, own=("cuda", "xpu", "mps", ANY),
    ),
    Door(
        "Liger", "liger-kernel", "", "", "", "0.8.5",
        "it is taken for the CPU; the operators are Triton's (liger_kernel/utils.py:47-56)",
        _DOORS, own=("cuda", "npu", "xpu"),
    ),
    Door(
        "FlashInfer", "flashinfer-python", "", "", "", "0.7.2.post1",
        "it raises (flashinfer/utils.py:316, flashinfer/jit/core.py:138)",
        _DOORS, own=("cuda",),
    ),
    Door(
        "Megatron-core", "megatron-core", "", "", "", "0.19.2",
        "it asks torch.cuda for the device throughout (megatron/core/tensor_parallel/layers.py:305)",
        _DOORS, own=("cuda",),
    ),
    Door(
        "ms-swift", "ms-swift", "", "", "", "4.6.0",
        "it takes the CPU and gloo, silently (swift/utils/torch_utils.py:127-136, 361-368)",
        _DOORS, own=("cuda", "npu", "musa", "mps"),
    ),
    Door(
        "LLaMA-Factory", "llamafactory", "", "", "", "0.9.5",
        "it takes the CPU, silently (llamafactory/extras/misc.py:146-155)",
        _DOORS, own=("cuda", "xpu", "npu", "mps"),
    ),
    Door(
        "torchtitan", "torchtitan", "", "", "", "0.3.0",
        "CUDA comes before any other device (torchtitan/tools/utils.py:55, torch/_utils.py:811)",
        _DOORS, own=("cuda", "mps", "xpu", ANY),
    ),
    Door(
        "Ray", "ray", "", "", "", "2.60.0",
        "its accelerators are a fixed list (ray/_private/accelerators/__init__.py:24), and Ray Train gives "
        "workers of others the CPU (ray/air/_internal/device_manager/__init__.py:20)",
        _DOORS, own=("cuda", "xpu", "npu", "hpu", "tpu", "mps", "rbln"),
    ),
)  # fmt: skip
