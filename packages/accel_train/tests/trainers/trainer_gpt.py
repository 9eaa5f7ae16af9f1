"""Train a GPT-2 of two small layers, made from a configuration, with Transformers' or TRL's trainer.

Its one argument is JSON: `out`, where each rank writes what it saw; `how`: "mixin" (our arguments), "order"
(`partial_state()` and then their own arguments), "own" (their own rules, on the CPU); `trl` for TRL's SFT;
`folder` for checkpoints, of which the one after half the steps is resumed from.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, TrainingArguments

import accel_core
from accel_train.accelerate import partial_state
from accel_train.transformers import AcceleratorArguments

WORDS = [f"w{number}" for number in range(60)]
STEPS = 12


class Arguments(AcceleratorArguments, TrainingArguments):
    """As users write it."""


def model() -> GPT2LMHeadModel:
    """The same weights in every process."""
    torch.manual_seed(0)
    size = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 32, "vocab_size": 64}
    # Without dropout: in several processes each would draw the same mask.
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    # Without fused kernels, whose sums are another device's in another order.
    return GPT2LMHeadModel(GPT2Config(**size, **none, **special, attn_implementation="eager"))


def tokenizer() -> PreTrainedTokenizerFast:
    """Words as they stand."""
    vocabulary = {name: number for number, name in enumerate(["<s>", "</s>", "<pad>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def sentences() -> list[str]:
    """Texts in which each word tells the next one."""
    return [" ".join(WORDS[(start + 7 * place) % 60] for place in range(16)) for start in range(96)]


def options(how: str, folder: str, ranks: int, **more: Any) -> dict[str, Any]:
    """What both trainers' arguments are given; the batch of 8 is shared among the ranks."""
    return {
        "output_dir": folder,
        "max_steps": STEPS,
        "per_device_train_batch_size": 8 // ranks,
        "learning_rate": 1e-2,
        "optim": "adamw_torch",
        "save_steps": STEPS // 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": how == "own",
        **more,
    }


def trainer(how: str, trl: bool, folder: str, ranks: int) -> Trainer:
    """The trainer, ready to go."""
    texts = sentences()
    if how == "order":
        partial_state()
    if trl:
        from sft_arguments import SFTArguments
        from trl import SFTConfig, SFTTrainer

        kind = SFTArguments if how == "mixin" else SFTConfig
        arguments = kind(
            **options(how, folder, ranks, max_length=16, gradient_checkpointing=False, bf16=False)
        )
        data = Dataset.from_list([{"text": text} for text in texts])
        return SFTTrainer(model=model(), args=arguments, train_dataset=data, processing_class=tokenizer())
    kind = Arguments if how == "mixin" else TrainingArguments
    ids = [tokenizer()(text)["input_ids"] for text in texts]
    data = Dataset.from_list([{"input_ids": row, "labels": row} for row in ids])
    return Trainer(model=model(), args=kind(**options(how, folder, ranks)), train_dataset=data)


def train(how: str, folder: str, trl: bool = False, ranks: int = 1) -> dict[str, Any]:
    """All steps, then the second half once more from the checkpoint."""
    first = trainer(how, trl, folder, ranks)
    first.train()
    again = trainer(how, trl, folder, ranks)
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS // 2}")
    state = first.accelerator.state
    return {
        "rank": state.process_index,
        "world": first.args.world_size,
        "device": str(first.args.device),
        "data": str(next(iter(first.get_train_dataloader()))["input_ids"].device),
        "weights": str(next(first.model.parameters()).device),
        "backend": state.backend,
        "parallel": first.args.parallel_mode.value,
        "losses": [line["loss"] for line in first.state.log_history if "loss" in line],
        "parameters": digest(first.model),
        "resumed": digest(again.model),
    }


def digest(trained: torch.nn.Module) -> str:
    """The parameters, to the last bit."""
    parts = [tensor.detach().cpu().numpy().tobytes() for tensor in trained.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def refused(call: Callable[[], Any]) -> str:
    """The message of the error of ours that `call` must raise."""
    try:
        call()
    except accel_core.IntegrationError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def wrong() -> list[str]:
    """What is said where the arguments, or another vendor's package beside ours, lead to another device."""
    arguments = [{"use_cpu": True}, {"deepspeed": {"train_batch_size": 1}}]
    said = [refused(partial(Arguments, **each)) for each in arguments]
    partial_state()
    torch.npu = types.SimpleNamespace(is_available=lambda: True)
    return [*said, refused(TrainingArguments)]


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    out = Path(asked.pop("out"))
    try:
        seen = train(**asked)
    except accel_core.IntegrationError as error:
        seen = {"rank": int(os.environ.get("RANK", "0")), "refused": str(error)}
    (out / f"{seen['rank']}.json").write_text(json.dumps(seen))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)
