"""A model of NeMo's in Lightning's `Trainer`, by strings as in its files: `nemo_model.py OUT JSON`."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
import lightning.pytorch as pl  # noqa: E402
import torch  # noqa: E402
from nemo.core.classes import ModelPT  # noqa: E402
from nemo.utils.exp_manager import exp_manager  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from accel_train.lightning import register  # noqa: E402


class Model(ModelPT):
    """Two layers, with NeMo's optimizer and data from a configuration."""

    def __init__(self, cfg: Any, trainer: Any = None) -> None:
        super().__init__(cfg=cfg, trainer=trainer)
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)
        )
        self.losses: list[float] = []
        self.devices: set[str] = set()

    def setup_training_data(self, train_data_config: Any) -> None:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(train_data_config.rows, 8, generator=generator)
        pairs = torch.utils.data.TensorDataset(images, images.sum(1, keepdim=True))
        self._train_dl = torch.utils.data.DataLoader(pairs, batch_size=train_data_config.batch_size)

    setup_validation_data = setup_training_data

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.devices |= {str(batch[0].device), str(self.device)}
        self.losses.append(loss.item())
        return loss

    @classmethod
    def list_available_models(cls) -> None:
        """Required of NeMo's models."""


out, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
logging.disable(logging.WARNING)
if asked["accelerator"] != "cpu":
    register()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=2, **quiet, **asked)
exp_manager(trainer, {"exp_dir": f"{out}/experiment", "create_tensorboard_logger": False, "name": "small"})
optimizer = {"name": "adamw", "lr": 0.01, "betas": [0.9, 0.98]}
cfg = OmegaConf.create({"train_ds": {"rows": 256, "batch_size": 32}, "optim": optimizer})
model = Model(cfg, trainer)
torch.manual_seed(2)
trainer.fit(model)
saved = [p.name for p in (out / "experiment").rglob("*.nemo")] if trainer.is_global_zero else None
parts = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
answer = {
    "losses": model.losses,
    "parameters": hashlib.sha256(parts).hexdigest(),
    "devices": sorted(model.devices),
    "saved": saved,
}
(out / f"{trainer.global_rank}.json").write_text(json.dumps(answer))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
    time.sleep(0.2)  # as in tests/trainers: gloo's threads end by then
