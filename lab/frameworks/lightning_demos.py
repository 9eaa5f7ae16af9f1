"""`lightning_demos.py NAME RANKS`: a demo of Lightning's own, on text made here instead of downloaded.

On cuda by Lightning's own arguments; on a device that it does not know, by accel_core's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer, demos, seed_everything
from lightning.pytorch.demos import boring_classes, lstm, transformer

DEMOS = {
    "BoringModel": boring_classes.BoringModel,
    "ManualOptimBoringModel": boring_classes.ManualOptimBoringModel,
    "LightningTransformer": transformer.LightningTransformer,
    "LightningLSTM": lstm.LightningLSTM,
}


def options(ranks: int) -> dict[str, Any]:
    """The trainer's arguments about devices."""
    kind = torch.accelerator.current_accelerator().type
    if kind == "cuda":
        return {
            "accelerator": "gpu",
            "devices": ranks,
            "strategy": "ddp" if ranks > 1 else "auto",
        }
    from accel_train.lightning import trainer_options

    return trainer_options(devices=ranks)


def main(name: str, ranks: int) -> None:
    """Fit, and with data for it validate, test and predict; the model must have been where it should."""
    transformer.WikiText2.download = staticmethod(
        lambda _: None
    )  # wants `requests` even for what is there
    text = Path("data/wikitext-2.txt")
    text.parent.mkdir(exist_ok=True)
    if not text.exists():
        text.write_text(
            "".join(f"w{start} w{start + 1} w{start + 2}\n" for start in range(600))
        )
    seed_everything(1)
    model = DEMOS[name]()
    trainer = Trainer(
        **options(ranks), max_epochs=1, limit_train_batches=6, limit_val_batches=2, logger=False,
        enable_progress_bar=False, enable_checkpointing=False,
    )  # fmt: skip
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trainer.fit(model)
    assert (
        trainer.strategy.root_device.type
        == torch.accelerator.current_accelerator().type
    )
    assert trainer.world_size == ranks
    assert any(
        not torch.equal(value.cpu(), before[key])
        for key, value in model.state_dict().items()
    )
    if name == "BoringModel":
        trainer.validate(model, verbose=False)
        trainer.test(model, verbose=False)
        if ranks == 1:
            assert trainer.predict(model)
    print(demos.__name__, name, "ok on", trainer.strategy.root_device)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
