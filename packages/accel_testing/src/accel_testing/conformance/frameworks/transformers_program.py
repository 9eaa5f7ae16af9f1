"""Training of each rank with Transformers: `python -m …frameworks.transformers_program FOLDER PART…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import accel_core
from accel_testing.conformance.claims import require, skip_unsupported
from accel_testing.conformance.frameworks.training import (
    BATCH,
    CLIP,
    OPTIMIZER,
    SAVED_AT,
    STEPS,
    Network,
    Rank,
    batch,
    parameters_of,
    require_claimed,
    require_same,
)
from accel_testing.conformance.parts import run_parts
from accel_train.transformers import AcceleratorArguments

__all__ = ["PARTS"]


class _Arguments(AcceleratorArguments, transformers.TrainingArguments):  # type: ignore[misc]
    """Here, as the Trainer pickles them."""


def main(folder: str, *names: str) -> None:
    """Train as docs/howto/trainers.md has it."""

    def begin() -> tuple[Rank]:
        return (Rank.of(accel_core.get_accelerator(), folder),)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names})


def _trained(
    rank: Rank, *, seed: int = 0, resume: Path | None = None, **more: Any
) -> tuple[Any, dict[str, torch.Tensor]]:
    """The trainer after `STEPS` steps, or the rest of them from a checkpoint, and what it began with."""
    began: dict[str, torch.Tensor] = {}

    class Remember(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            began.update(parameters_of(network))

        def on_save(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            torch.save(
                parameters_of(network), rank.folder / f"saved-{state.global_step}.pt"
            )

    first, second = OPTIMIZER["betas"]
    arguments = _Arguments(
        output_dir=str(rank.folder / "out"), max_steps=STEPS, optim="adamw_torch", max_grad_norm=CLIP,
        per_device_train_batch_size=BATCH // int(os.environ["WORLD_SIZE"]), lr_scheduler_type="constant",
        learning_rate=OPTIMIZER["lr"], adam_beta1=first, adam_beta2=second, adam_epsilon=OPTIMIZER["eps"],
        weight_decay=OPTIMIZER["weight_decay"], logging_steps=1, report_to="none", disable_tqdm=True,
        **{"save_strategy": "no", **more},
    )  # fmt: skip
    network = Network(seed)
    rows = [
        {"features": row, "labels": label} for row, label in zip(*batch(), strict=True)
    ]
    trainer = transformers.Trainer(
        model=network, args=arguments, train_dataset=rows, callbacks=[Remember()]
    )
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    return trainer, began


def _require_trained(
    rank: Rank, trainer: Any, *, first: int = 0, dtype: torch.dtype = torch.float32
) -> None:
    """`first`: the step that it began with; a resumed trainer has the losses of the others too."""
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    rank.require_trained(trainer.model, losses[first:], dtype=dtype)


def _trains(rank: Rank) -> None:
    trainer, _began = _trained(rank, save_strategy="steps", save_steps=SAVED_AT)
    _require_trained(rank, trainer)


def _resumes(rank: Rank) -> None:
    place = rank.folder / "out" / f"checkpoint-{SAVED_AT}"
    require(place.exists(), "no checkpoint was saved: see the check of the training")
    trainer, began = _trained(rank, seed=1, resume=place)
    saved = torch.load(
        rank.folder / f"saved-{SAVED_AT}.pt", map_location="cpu", weights_only=True
    )
    require_same(began, saved, "parameters of a checkpoint, once it is loaded")
    _require_trained(rank, trainer, first=SAVED_AT)


def _in_bfloat16(rank: Rank) -> None:
    _mixed(rank, torch.bfloat16, bf16=True)


def _in_float16(rank: Rank) -> None:
    try:
        _mixed(rank, torch.float16, fp16=True)
    except accel_core.IntegrationError as error:
        # A list of device types in Accelerate, which nobody can add to (1.15.0, accelerator.py:571).
        if "Accelerate scales losses on" not in str(error):
            raise
        skip_unsupported(f"Accelerate has no float16 for it: {error}")


def _mixed(rank: Rank, dtype: torch.dtype, **precision: Any) -> None:
    require_claimed(rank.accelerator, dtype)
    trainer, _began = _trained(rank, **precision)
    _require_trained(rank, trainer, dtype=dtype)


def _in_ranks(rank: Rank) -> None:
    trainer, _began = _trained(rank)
    _require_trained(rank, trainer)


PARTS: dict[str, Callable[[Rank], None]] = {
    "train": _trains,
    "train_resumes": _resumes,
    "train_in_bfloat16": _in_bfloat16,
    "train_in_float16": _in_float16,
    "train_in_ranks": _in_ranks,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
