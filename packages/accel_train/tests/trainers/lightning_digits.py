"""A small Lightning module on 1,797 real images of digits, and what a training of it is told by."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from accel_tests import jobs
from torch import nn

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


class Digits(pl.LightningModule):
    """Two layers with dropout; remembers each loss as the number it is."""

    def __init__(self):
        super().__init__()
        self.layers = jobs.network(nn.Dropout(0.1))
        self.losses, self.norms, self.dtypes, self.devices, self.accuracy = (
            [],
            [],
            set(),
            set(),
            0.0,
        )

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
        self.log(
            "accuracy",
            (self.layers(images).argmax(1) == labels).float().mean(),
            sync_dist=True,
        )

    def on_validation_epoch_end(self):
        self.accuracy = self.trainer.callback_metrics["accuracy"].item()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


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
        warnings.filterwarnings(
            "ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning
        )
        if random is not None:
            torch.set_rng_state(random)
        loaded = {} if resume is None else {"ckpt_path": resume, "weights_only": False}
        made.fit(model, jobs.digits(), jobs.digits(shuffle=False), **loaded)
    return model, made


def fit_with_fabric(fabric, saved=None, resume=None):
    """The same with Fabric's loop; `saved` is a checkpoint to write, `resume` one to go on from.

    Gradients are clipped after each step, as the norm of shards is a sum in another order: so training is the
    same bit for bit, and the norms before and after tell what clipping did.
    """
    fabric.launch()
    model = Digits()
    # FSDP wants the module first.
    layers = fabric.setup_module(model.layers)
    optimizer = fabric.setup_optimizers(torch.optim.Adam(layers.parameters(), 1e-2))
    state = {"model": layers, "optimizer": optimizer}
    if resume is not None:
        fabric.load(resume, state)
    torch.manual_seed(1)
    for images, labels in fabric.setup_dataloaders(jobs.digits()):
        output = layers(images)
        loss = nn.functional.cross_entropy(output, labels)
        fabric.backward(loss)
        optimizer.step()
        for _ in range(2):
            norm = fabric.clip_gradients(layers, optimizer, max_norm=0.1)
            model.norms.append(getattr(norm, "full_tensor", norm.clone)().item())
        optimizer.zero_grad()
        model.losses.append(loss.item())
        model.devices |= {str(images.device), str(output.device)}
    if saved:
        fabric.save(saved, state)
    return model


def told(model, learned=True):
    """What two trainings are compared by; in shards no process knows what was `learned`."""
    return {
        "losses": model.losses,
        "norms": model.norms,
        "dtypes": sorted(model.dtypes),
        "devices": sorted(model.devices),
        "accuracy": model.accuracy,
        **({"parameters": jobs.digest(model)} if learned else {}),
    }
