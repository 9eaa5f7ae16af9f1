"""Train in each rank with Lightning: `python -m …frameworks.lightning_program FOLDER PART…`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import accel_core
from accel_testing.conformance.claims import require
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
from accel_train.lightning import accelerator, trainer_options
from accel_train.lightning._kit import lightning_module

__all__ = ["PARTS"]


def main(folder: str, *names: str) -> None:
    """Run the parts, each of which trains as in docs/howto/trainers.md."""

    def begin() -> tuple[Rank]:
        accelerator()  # this call imports Lightning
        return (Rank.of(accel_core.get_accelerator(), folder),)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names})


def _module(seed: int = 0) -> Any:
    """Return a LightningModule with the network; it records the losses and the initial parameters."""

    class Module(lightning_module("pytorch", "core").LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network(seed)
            self.losses: list[float] = []
            self.first_parameters: dict[str, torch.Tensor] = {}

        def training_step(self, data: Any) -> torch.Tensor:
            loss: torch.Tensor = self.network(*data)[0]
            self.log("loss", loss, on_step=True, on_epoch=False, sync_dist=True)
            return loss

        def on_train_start(self) -> None:
            self.first_parameters = parameters_of(self.network)

        def on_train_batch_end(self, *_: Any) -> None:
            self.losses.append(float(self.trainer.callback_metrics["loss"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), **OPTIMIZER)

    return Module()


def _fit(
    rank: Rank, *, seed: int = 0, resume: Path | None = None, **options: Any
) -> Any:
    """Train a module for `STEPS` epochs of one step, or resume from a checkpoint; return the module."""
    ranks = int(os.environ["WORLD_SIZE"])
    trainer = lightning_module("pytorch", "trainer").Trainer(
        **trainer_options(devices=ranks), max_epochs=STEPS, gradient_clip_val=CLIP, logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(rank.folder),
        **{"enable_checkpointing": False, **options},
    )  # fmt: skip
    module = _module(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(
            module,
            DataLoader(TensorDataset(*make_batch()), batch_size=BATCH // ranks),
            ckpt_path=resume,
        )
    return module


def _fit_and_save(rank: Rank) -> None:
    """Train, and save a checkpoint during the training."""
    save_checkpoint = lightning_module("pytorch", "callbacks").ModelCheckpoint(
        dirpath=rank.folder, filename="{epoch}", every_n_epochs=SAVED_AT, save_top_k=-1
    )
    module = _fit(rank, enable_checkpointing=True, callbacks=[save_checkpoint])
    rank.require_trained(module.network, module.losses)


def _resume(rank: Rank) -> None:
    """Load the checkpoint of `_fit_and_save`, and train the remaining steps."""
    checkpoint = rank.folder / f"epoch={SAVED_AT - 1}.ckpt"
    require(checkpoint.exists(), "no checkpoint was saved: see the training's check")
    module = _fit(rank, seed=1, resume=checkpoint)
    saved = torch.load(checkpoint, map_location="cpu", weights_only=False)["state_dict"]
    expected = {name.removeprefix("network."): tensor for name, tensor in saved.items()}
    require_same(
        module.first_parameters,
        expected,
        "the parameters of the loaded checkpoint",
    )
    rank.require_trained(module.network, module.losses)


def _fit_in_bfloat16(rank: Rank) -> None:
    """Train in bfloat16."""
    _fit_in_short_type(rank, torch.bfloat16, "bf16-mixed")


def _fit_in_float16(rank: Rank) -> None:
    """Train in float16."""
    _fit_in_short_type(rank, torch.float16, "16-mixed")


def _fit_in_short_type(rank: Rank, dtype: torch.dtype, precision: str) -> None:
    """Train in `dtype`; skip the part if the accelerator does not claim the type."""
    require_claimed(rank.accelerator, dtype)
    module = _fit(rank, precision=precision)
    rank.require_trained(module.network, module.losses, dtype=dtype)


def _fit_in_ranks(rank: Rank) -> None:
    """Train in several ranks."""
    module = _fit(rank)
    rank.require_trained(module.network, module.losses)


PARTS: dict[str, Callable[[Rank], None]] = {
    "fit": _fit_and_save,
    "fit_resumes": _resume,
    "fit_in_bfloat16": _fit_in_bfloat16,
    "fit_in_float16": _fit_in_float16,
    "fit_in_ranks": _fit_in_ranks,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
