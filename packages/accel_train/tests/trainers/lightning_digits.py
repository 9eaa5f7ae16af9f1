"""A small Lightning module on 1,797 real images of digits, and what a training of it is told by."""

from __future__ import annotations

import hashlib
import logging
import warnings

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}


class Digits(pl.LightningModule):
    """Two layers with dropout; remembers each loss as the number it is."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
        self.losses = []
        self.dtypes = set()
        self.devices = set()
        self.accuracy = 0.0

    def training_step(self, batch, index):
        images, labels = batch
        output = self.layers(images)
        self.dtypes.add(str(output.dtype))
        self.devices |= {str(images.device), str(output.device), str(self.device)}
        loss = nn.functional.cross_entropy(output.float(), labels)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", (self.layers(images).argmax(1) == labels).float().mean(), sync_dist=True)

    def on_validation_epoch_end(self):
        self.accuracy = self.trainer.callback_metrics["accuracy"].item()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def data(*, shuffle=True):
    images, labels = load_digits(return_X_y=True)
    pairs = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    return DataLoader(pairs, batch_size=64, shuffle=shuffle)


def fit(*, epochs=1, resume=None, random=None, kind=Digits, **trainer):
    """Train from the same start each time; `trainer` are the `Trainer`'s arguments.

    `random` is the state of torch's generator, from which the loader shuffles and dropout draws.
    """
    options = {"logger": False, "enable_checkpointing": False, **QUIET, **trainer}
    model = kind()
    torch.manual_seed(1)
    made = pl.Trainer(max_epochs=epochs, **options)
    with warnings.catch_warnings():
        # Lightning's advice on the number of workers; the images are in memory.
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        # Lightning 2.6 walks its loaders with what torch 2.13 calls by another name.
        warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
        if random is not None:
            torch.set_rng_state(random)
        made.fit(
            model,
            data(),
            data(shuffle=False),
            ckpt_path=resume,
            weights_only=None if resume is None else False,
        )
    return model, made


def fit_with_fabric(fabric):
    """The same with Fabric's loop."""
    fabric.launch()
    model = Digits()
    layers, optimizer = fabric.setup(model.layers, torch.optim.Adam(model.layers.parameters(), 1e-2))
    torch.manual_seed(1)
    for images, labels in fabric.setup_dataloaders(data()):
        output = layers(images)
        loss = nn.functional.cross_entropy(output, labels)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        model.losses.append(loss.item())
        model.devices |= {str(images.device), str(output.device)}
    return model


def told(model):
    """What two trainings are compared by."""
    state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in state.values()))
    return {
        "losses": model.losses,
        "parameters": digest.hexdigest(),
        "dtypes": sorted(model.dtypes),
        "devices": sorted(model.devices),
        "accuracy": model.accuracy,
    }
