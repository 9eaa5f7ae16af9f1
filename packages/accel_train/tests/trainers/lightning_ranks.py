"""Train with Lightning in one process or several: a list of trainings, one after the other, as `jobs` says.

`folder` is for checkpoints; `own` for Lightning's own accelerator and strategies, on the CPU; `trainings`
gives names with arguments of `train`.
"""

import os
from pathlib import Path

import lightning.fabric.strategies as fabric_strategies
import lightning.pytorch.strategies as strategies
import torch
from accel_tests import jobs
from lightning.fabric import Fabric
from lightning_digits import Digits, fit, fit_with_fabric, told
from torch import nn
from torch.distributed.fsdp import fully_shard

from accel_train.lightning import fabric_options, register, trainer_options

RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Sharded(Digits):
    """The digits with FSDP2, which a model applies to itself."""

    def configure_model(self):
        shard(self.layers, self.device_mesh)


def shard(layers, mesh):
    """FSDP2 of each linear layer, and of the whole."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh["data_parallel"])
    fully_shard(layers, mesh=mesh["data_parallel"])
    return layers


def options(strategy, devices, own, fabric, sharded, mesh):
    """The strategy's arguments: an accelerator with a strategy of Lightning's own, or ours."""
    given = {}
    if strategy == "accel_fsdp":
        assert "acme" in register()
        return {"accelerator": "acme", "devices": devices, "strategy": strategy}
    if strategy == "fsdp":
        given = {
            "auto_wrap_policy": {nn.Linear},
            "state_dict_type": "sharded" if sharded else "full",
        }
    elif strategy == "model_parallel":
        sizes = {"data_parallel_size": RANKS, "tensor_parallel_size": 1}
        given = {**sizes, "save_distributed_checkpoint": sharded}
        given |= {"parallelize_fn": shard} if fabric else {}
    if mesh:
        given |= {"device_mesh": tuple(mesh), "sharding_strategy": "HYBRID_SHARD"}
    if not own:
        ours = fabric_options if fabric else trainer_options
        return dict(ours(strategy=strategy, devices=devices, **given))
    theirs = fabric_strategies if fabric else strategies
    kinds = {"ddp": theirs.DDPStrategy, "model_parallel": theirs.ModelParallelStrategy}
    return {
        "accelerator": "cpu",
        "devices": devices,
        "strategy": kinds[strategy](**given),
    }


def train(
    folder, strategy, devices=RANKS, own=False, fabric=False, sharded=False, resume=None, precision="32-true",
    mesh=()
):  # fmt: skip
    """An epoch, saved to `folder/saved`; with `resume` the second one."""
    given = {
        **options(strategy, devices, own, fabric, sharded, list(mesh)),
        "precision": precision,
    }
    saved = f"{folder}/saved"
    if fabric:
        model = fit_with_fabric(Fabric(**given), saved, resume)
    else:
        kind = Sharded if strategy == "model_parallel" else Digits
        model, trainer = fit(
            kind=kind, epochs=1 if resume is None else 2, resume=resume, **given
        )
        trainer.save_checkpoint(saved)
    seen = {**told(model, learned=False), "backend": torch.distributed.get_backend()}
    return seen if sharded else {**seen, **numbers(saved)}


def numbers(path):
    """Parameters and Adam's moments in a checkpoint of Lightning's, bit for bit, in the model's order."""
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
    assert len(parameters) == 4
    return {
        "parameters": jobs.digest(parameters.values()),
        "moments": jobs.digest(moments),
    }


def all_of(folder, trainings, own=False):
    """What this rank saw of each."""
    answers = {}
    for name, job in trainings.items():
        here = Path(folder) / name
        here.mkdir(exist_ok=True)
        answers[name] = train(str(here), own=own, **job)
    return answers


if __name__ == "__main__":
    jobs.report(all_of)
