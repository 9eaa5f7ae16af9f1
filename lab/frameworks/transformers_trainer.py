"""Transformers' Trainer on a GPT-2 made here: train, evaluate, save, resume to the bit; `bf16` in bfloat16.

On cuda by Transformers' own rules; on a device that it does not know, with accel_core's arguments.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

KIND = torch.accelerator.current_accelerator().type
if KIND == "cuda":
    Arguments = TrainingArguments
else:
    from accel_train.transformers import AcceleratorArguments

    class Arguments(AcceleratorArguments, TrainingArguments):
        """As users write it."""


class Counting(torch.utils.data.Dataset):
    """Sequences in which each number tells the next."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = (torch.arange(16) * 7 + index) % 60
        return {"input_ids": row, "labels": row}


def model() -> GPT2LMHeadModel:
    """The same weights in every process; without dropout, whose numbers Trainer saves for kinds it knows."""
    set_seed(0)
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_embd=32, n_head=2, n_positions=32, vocab_size=64, **none
        )
    )


def trainer(folder: str, **more: object) -> Trainer:
    """Twelve steps, a checkpoint after six, batches by a worker and pinned."""
    arguments = Arguments(
        folder, max_steps=12, per_device_train_batch_size=4, learning_rate=1e-2, save_steps=6,
        logging_steps=6, report_to="none", disable_tqdm=True, dataloader_num_workers=1, **more,
    )  # fmt: skip
    return Trainer(
        model(), arguments, train_dataset=Counting(), eval_dataset=Counting()
    )


def main(half: bool) -> None:
    """Each claim as an assertion."""
    before = trainer("before").evaluate()[
        "eval_loss"
    ]  # of its own: evaluating draws random numbers
    whole = trainer("run", bf16=half)
    whole.train()
    assert whole.model.device.type == KIND, whole.model.device
    after = whole.evaluate()["eval_loss"]
    assert after < 0.9 * before, (before, after)
    resumed = trainer("run", bf16=half)
    resumed.train(resume_from_checkpoint=str(Path("run", "checkpoint-6")))
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), (
        "resumed is another model"
    )
    print(
        "Trainer ok on",
        whole.model.device,
        "rank",
        os.environ.get("RANK", "0"),
        before,
        after,
    )


if __name__ == "__main__":
    main("bf16" in sys.argv)
