"""Training of each rank with Lightning: `python -m …frameworks.lightning_program FOLDER PART…`."""

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
    batch,
    parameters_of,
    require_claimed,
    require_same,
)
from accel_testing.conformance.parts import run_parts
from accel_train.lightning import accelerator, trainer_options
from accel_train.lightning._kit import lightning_module

__all__ = ["PARTS"]


def main(folder: str, *names: str) -> None:
    """Train as docs/howto/trainers.md has it."""

    def begin() -> tuple[Rank]:
        accelerator()  # imports Lightning
        return (Rank.of(accel_core.get_accelerator(), folder),)

    run_parts(Path(folder), begin, {name: PARTS[name] for name in names})


def _module(seed: int = 0) -> Any:
    """A LightningModule of the network, which remembers losses and what it began with."""

    class Module(lightning_module("pytorch", "core").LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network(seed)
            self.losses: list[float] = []
            self.began: dict[str, torch.Tensor] = {}

        def training_step(self, data: Any) -> torch.Tensor:
            loss: torch.Tensor = self.network(*data)[0]
            self.log("loss", loss, on_step=True, on_epoch=False, sync_dist=True)
            return loss

        def on_train_start(self) -> None:
            self.began = parameters_of(self.network)

        def on_train_batch_end(self, *_: Any) -> None:
            self.losses.append(float(self.trainer.callback_metrics["loss"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), **OPTIMIZER)

    return Module()


def _fit(rank: Rank, *, seed: int = 0, resume: Path | None = None, **more: Any) -> Any:
    """Train a module for `STEPS` epochs of one step, or the rest of them from a checkpoint."""
    ranks = int(os.environ["WORLD_SIZE"])
    trainer = lightning_module("pytorch", "trainer").Trainer(
        **trainer_options(devices=ranks), max_epochs=STEPS, gradient_clip_val=CLIP, logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(rank.folder),
        **{"enable_checkpointing": False, **more},
    )  # fmt: skip
    module = _module(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(
            module,
            DataLoader(TensorDataset(*batch()), batch_size=BATCH // ranks),
            ckpt_path=resume,
        )
    return module


def _fits(rank: Rank) -> None:
    saving = lightning_module("pytorch", "callbacks").ModelCheckpoint(
        dirpath=rank.folder, filename="{epoch}", every_n_epochs=SAVED_AT, save_top_k=-1
    )
    module = _fit(rank, enable_checkpointing=True, callbacks=[saving])
    rank.require_trained(module.network, module.losses)


def _resumes(rank: Rank) -> None:
    place = rank.folder / f"epoch={SAVED_AT - 1}.ckpt"
    require(place.exists(), "no checkpoint was saved: see the check of the training")
    module = _fit(rank, seed=1, resume=place)
    saved = torch.load(place, map_location="cpu", weights_only=False)["state_dict"]
    expected = {name.removeprefix("network."): tensor for name, tensor in saved.items()}
    require_same(
        module.began, expected, "parameters of a checkpoint, once it is loaded"
    )
    rank.require_trained(module.network, module.losses)


def _in_bfloat16(rank: Rank) -> None:
    _mixed(rank, torch.bfloat16, "bf16-mixed")


def _in_float16(rank: Rank) -> None:
    _mixed(rank, torch.float16, "16-mixed")


def _mixed(rank: Rank, dtype: torch.dtype, precision: str) -> None:
    require_claimed(rank.accelerator, dtype)
    module = _fit(rank, precision=precision)
    rank.require_trained(module.network, module.losses, dtype=dtype)


def _in_ranks(rank: Rank) -> None:
    module = _fit(rank)
    rank.require_trained(module.network, module.losses)


PARTS: dict[str, Callable[[Rank], None]] = {
    "fit": _fits,
    "fit_resumes": _resumes,
    "fit_in_bfloat16": _in_bfloat16,
    "fit_in_float16": _in_float16,
    "fit_in_ranks": _in_ranks,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
