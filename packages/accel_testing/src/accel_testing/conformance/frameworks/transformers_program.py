"""Train in each rank with Transformers: `python -m …frameworks.transformers_program FOLDER PART…`."""

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
    make_batch,
    parameters_of,
    require_claimed,
    require_same,
)
from accel_testing.conformance.parts import run_parts
from accel_train.transformers import AcceleratorArguments

__all__ = ["PARTS"]


class _Arguments(AcceleratorArguments, transformers.TrainingArguments):  # type: ignore[misc]
    """The training arguments, defined at module level because the Trainer pickles them."""


def main(folder: str, *names: str) -> None:
    """Run the parts, each of which trains as in docs/howto/trainers.md."""

    def begin() -> tuple[Rank]:
        return (Rank.of(accel_core.get_accelerator(), folder),)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names})


def _train(
    rank: Rank, *, seed: int = 0, resume: Path | None = None, **options: Any
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Train all steps, or resume from a checkpoint; return the trainer and the initial parameters."""
    first_parameters: dict[str, torch.Tensor] = {}

    class Recorder(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            first_parameters.update(parameters_of(network))

        def on_save(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            torch.save(
                parameters_of(network), rank.folder / f"saved-{state.global_step}.pt"
            )

    beta1, beta2 = OPTIMIZER["betas"]
    arguments = _Arguments(
        output_dir=str(rank.folder / "out"), max_steps=STEPS, optim="adamw_torch", max_grad_norm=CLIP,
        per_device_train_batch_size=BATCH // int(os.environ["WORLD_SIZE"]), lr_scheduler_type="constant",
        learning_rate=OPTIMIZER["lr"], adam_beta1=beta1, adam_beta2=beta2, adam_epsilon=OPTIMIZER["eps"],
        weight_decay=OPTIMIZER["weight_decay"], logging_steps=1, report_to="none", disable_tqdm=True,
        **{"save_strategy": "no", **options},
    )  # fmt: skip
    network = Network(seed)
    rows = [
        {"features": row, "labels": label}
        for row, label in zip(*make_batch(), strict=True)
    ]
    trainer = transformers.Trainer(
        model=network, args=arguments, train_dataset=rows, callbacks=[Recorder()]
    )
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    return trainer, first_parameters


def _require_trained(
    rank: Rank, trainer: Any, *, first_step: int = 0, dtype: torch.dtype = torch.float32
) -> None:
    """Require the reference's result; a resumed trainer also reports the losses before `first_step`."""
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    rank.require_trained(trainer.model, losses[first_step:], dtype=dtype)


def _train_and_save(rank: Rank) -> None:
    """Train, and save a checkpoint during the training."""
    trainer, _first_parameters = _train(
        rank, save_strategy="steps", save_steps=SAVED_AT
    )
    _require_trained(rank, trainer)


def _resume(rank: Rank) -> None:
    """Load the checkpoint of `_train_and_save`, and train the remaining steps."""
    checkpoint = rank.folder / "out" / f"checkpoint-{SAVED_AT}"
    require(checkpoint.exists(), "no checkpoint was saved: see the training's check")
    trainer, first_parameters = _train(rank, seed=1, resume=checkpoint)
    saved = torch.load(
        rank.folder / f"saved-{SAVED_AT}.pt", map_location="cpu", weights_only=True
    )
    require_same(first_parameters, saved, "the parameters of the loaded checkpoint")
    _require_trained(rank, trainer, first_step=SAVED_AT)


def _train_in_bfloat16(rank: Rank) -> None:
    """Train in bfloat16."""
    _train_in_short_type(rank, torch.bfloat16, bf16=True)


def _train_in_float16(rank: Rank) -> None:
    """Train in float16; skip the part if Accelerate does not support it on the device."""
    try:
        _train_in_short_type(rank, torch.float16, fp16=True)
    except accel_core.IntegrationError as error:
        # Accelerate has a fixed list of device types (1.15.0, accelerator.py:571).
        if "Accelerate scales losses on" not in str(error):
            raise
        skip_unsupported(f"Accelerate does not support float16 on the device: {error}")


def _train_in_short_type(rank: Rank, dtype: torch.dtype, **precision: Any) -> None:
    """Train in `dtype`; skip the part if the accelerator does not claim the type."""
    require_claimed(rank.accelerator, dtype)
    trainer, _first_parameters = _train(rank, **precision)
    _require_trained(rank, trainer, dtype=dtype)


def _train_in_ranks(rank: Rank) -> None:
    """Train in several ranks."""
    trainer, _first_parameters = _train(rank)
    _require_trained(rank, trainer)


PARTS: dict[str, Callable[[Rank], None]] = {
    "train": _train_and_save,
    "train_resumes": _resume,
    "train_in_bfloat16": _train_in_bfloat16,
    "train_in_float16": _train_in_float16,
    "train_in_ranks": _train_in_ranks,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
