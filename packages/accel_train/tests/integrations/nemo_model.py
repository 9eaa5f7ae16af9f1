"""A model of NeMo's in Lightning's `Trainer`, by strings as in its files; started as `jobs` says."""

import logging
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import lightning.pytorch as pl  # noqa: E402
import torch  # noqa: E402
from accel_tests import jobs  # noqa: E402
from nemo.core.classes import ModelPT  # noqa: E402
from nemo.utils.exp_manager import exp_manager  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from accel_train.lightning import register  # noqa: E402


class Model(ModelPT):
    """Two layers, with NeMo's optimizer and data from a configuration."""

    def __init__(self, cfg, trainer=None):
        super().__init__(cfg=cfg, trainer=trainer)
        self.layers = jobs.network(torch.nn.Dropout(0.1))
        self.losses, self.devices = [], set()

    def setup_training_data(self, train_data_config):
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(512, 64, generator=generator)
        pairs = torch.utils.data.TensorDataset(images, images[:, :10].argmax(1))
        self._train_dl = torch.utils.data.DataLoader(
            pairs, batch_size=train_data_config.batch_size
        )

    setup_validation_data = setup_training_data

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.devices |= {str(batch[0].device), str(self.device)}
        self.losses.append(loss.item())
        return loss

    @classmethod
    def list_available_models(cls):
        """Required of NeMo's models."""


def train(folder, **asked):
    logging.disable(logging.WARNING)
    if asked["accelerator"] != "cpu":
        register()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    trainer = pl.Trainer(max_epochs=1, **quiet, **asked)
    manager = {
        "exp_dir": f"{folder}/experiment",
        "create_tensorboard_logger": False,
        "name": "small",
    }
    exp_manager(trainer, manager)
    optimizer = {"name": "adamw", "lr": 0.01, "betas": [0.9, 0.98]}
    model = Model(
        OmegaConf.create({"train_ds": {"batch_size": 64}, "optim": optimizer}), trainer
    )
    torch.manual_seed(2)
    trainer.fit(model)
    saved = (
        [p.name for p in Path(folder, "experiment").rglob("*.nemo")]
        if trainer.is_global_zero
        else None
    )
    seen = {"losses": model.losses, "devices": sorted(model.devices), "saved": saved}
    return {**seen, "parameters": jobs.digest(model)}


if __name__ == "__main__":
    jobs.report(train)
