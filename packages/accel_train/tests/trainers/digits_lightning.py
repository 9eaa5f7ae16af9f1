"""A small Lightning module on real images of digits, by Trainer or Fabric, in one process or several.

`jobs.report` tells how it is started: with `folder` for checkpoints; `own` for Lightning's own accelerator
and strategies, on the CPU; `jobs`, names with arguments of `train`, one training after the other.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import lightning.fabric.strategies as fabric_strategies
import lightning.pytorch as pl
import torch
from accel_tests import jobs as shared
from lightning.fabric import Fabric
from lightning.pytorch import strategies
from torch import nn
from torch.distributed.fsdp import fully_shard

from accel_train.lightning import fabric_options, register, trainer_options

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}


class Digits(pl.LightningModule):
    """Two layers with dropout; remembers each loss as the number it is."""

    def __init__(self):
        super().__init__()
        self.layers = shared.network(nn.Dropout(0.1))
        self.losses, self.dtypes, self.devices, self.accuracy = [], set(), set(), 0.0

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


class Sharded(Digits):
    """The digits with FSDP2, which a model applies to itself."""

    def configure_model(self):
        shard(self.layers, self.device_mesh)


def shard(layers, mesh):
    """FSDP2 of each linear layer, and of the whole."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(layers, mesh=mesh["data_parallel"])


def fit(*, epochs=1, resume=None, random=None, kind=Digits, **trainer):
    """Train from the same start each time; `trainer` are the `Trainer`'s arguments.

    `random` is the state of torch's generator, from which the loader shuffles and dropout draws.
    """
    model = kind()
    torch.manual_seed(1)
    made = pl.Trainer(
        **{"max_epochs": epochs, "logger": False, "enable_checkpointing": False, **QUIET, **trainer}
    )
    with warnings.catch_warnings():
        # Lightning's advice on the number of workers; the images are in memory.
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        # Lightning 2.6 walks its loaders with what torch 2.13 calls by another name.
        warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
        if random is not None:
            torch.set_rng_state(random)
        weights_only = None if resume is None else False
        made.fit(
            model, shared.digits(), shared.digits(shuffle=False), ckpt_path=resume, weights_only=weights_only
        )
    return model, made


def fit_with_fabric(fabric, *, resume=None, save=None):
    """The same with Fabric's loop."""
    fabric.launch()
    model = Digits()
    if save is None:
        layers, optimizer = fabric.setup(model.layers, torch.optim.Adam(model.layers.parameters(), 1e-2))
    else:
        layers = fabric.setup_module(model.layers)
        optimizer = fabric.setup_optimizers(torch.optim.Adam(layers.parameters(), 1e-2))
    state = {"model": layers, "optimizer": optimizer}
    if resume is not None:
        fabric.load(resume, state)
    torch.manual_seed(1)
    for images, labels in fabric.setup_dataloaders(shared.digits()):
        output = layers(images)
        loss = nn.functional.cross_entropy(output, labels)
        fabric.backward(loss)
        fabric.clip_gradients(layers, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        model.losses.append(loss.item())
        model.devices |= {str(images.device), str(output.device)}
    if save is not None:
        fabric.save(save, state)
    return model


def seen(model):
    """What the model remembers."""
    return {
        "losses": model.losses,
        "dtypes": sorted(model.dtypes),
        "devices": sorted(model.devices),
        "accuracy": model.accuracy,
    }


def told(model):
    """What two trainings are compared by."""
    return {**seen(model), "parameters": shared.digest(model)}


def options(strategy, devices, own, fabric, sharded, mesh):
    """An accelerator with a strategy of Lightning's own, or ours."""
    given = {}
    if strategy == "accel_fsdp":
        assert "acme" in register()
        return {"accelerator": "acme", "devices": devices, "strategy": strategy}
    if strategy == "fsdp":
        given = {"auto_wrap_policy": {nn.Linear}, "state_dict_type": "sharded" if sharded else "full"}
    elif strategy == "model_parallel":
        given = {"data_parallel_size": devices, "tensor_parallel_size": 1}
        given |= {"save_distributed_checkpoint": sharded, **({"parallelize_fn": shard} if fabric else {})}
    if mesh:
        given |= {"device_mesh": tuple(mesh), "sharding_strategy": "HYBRID_SHARD"}
    if not own:
        return dict(
            (fabric_options if fabric else trainer_options)(strategy=strategy, devices=devices, **given)
        )
    theirs = fabric_strategies if fabric else strategies
    kinds = {"ddp": theirs.DDPStrategy, "model_parallel": theirs.ModelParallelStrategy}
    return {"accelerator": "cpu", "devices": devices, "strategy": kinds[strategy](**given)}


def train(
    folder,
    own,
    *,
    strategy="ddp",
    devices=2,
    fabric=False,
    sharded=False,
    resume=None,
    precision="32-true",
    mesh=(),
):
    """An epoch, saved to `folder/saved`; with `resume` the second one."""
    given = {**options(strategy, devices, own, fabric, sharded, mesh), "precision": precision}
    saved, ranks = f"{folder}/saved", torch.distributed
    more = {}
    if fabric:
        made = Fabric(**given)
        model = fit_with_fabric(made, resume=resume, save=saved)
        more["mean"] = made.all_reduce(torch.tensor(float(made.global_rank), device=made.device)).item()
    else:
        kind = Sharded if strategy == "model_parallel" else Digits
        model, trainer = fit(kind=kind, epochs=1 if resume is None else 2, resume=resume, **given)
        trainer.save_checkpoint(saved)
    more |= {"backend": ranks.get_backend(), "world": ranks.get_world_size()}
    return {**seen(model), **more, **({} if sharded else numbers(saved))}


def numbers(path):
    """Parameters and Adam's moments in a checkpoint of Lightning's, to the last bit, in the model's order."""
    found = torch.load(path, map_location="cpu", weights_only=False)
    parameters = found.get("state_dict") or found["model"]
    (adam,) = found.get("optimizer_states") or [found["optimizer"]]
    states = list(adam["state"].items())
    if isinstance(states[0][0], str):  # names, which Fabric keeps of sharded ones
        order = [name.removeprefix("layers.") for name in parameters]
        states.sort(key=lambda state: order.index(state[0].removeprefix("layers.")))
    else:
        states.sort()
    moments = [state[name] for _, state in states for name in ("exp_avg", "exp_avg_sq")]
    assert len(moments) >= 4
    return {"parameters": shared.digest(parameters.values()), "moments": shared.digest(moments)}


def all_of(folder, jobs, own=False):
    """What each training answers."""
    answers = {}
    for name, job in jobs.items():
        here = Path(folder, name)
        here.mkdir(parents=True, exist_ok=True)
        answers[name] = train(str(here), own, **job)
    return answers


if __name__ == "__main__":
    shared.report(all_of)
