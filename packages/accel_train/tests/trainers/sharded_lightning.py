"""Train in shards with Lightning, in one process or several: a list of trainings, one after the other.

Its one argument is JSON: `out`, where each rank writes its answers by name; `folder` for checkpoints; `own`
for Lightning's own accelerator and strategies, on the CPU; `jobs`, names with arguments of `train`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import lightning.fabric.strategies as fabric_strategies
import lightning.pytorch.strategies as strategies
import torch
from lightning.fabric import Fabric
from lightning_digits import Digits, data, fit
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


def options(strategy, own, fabric, sharded, mesh):
    """The strategy's arguments: an accelerator with a strategy of Lightning's own, or ours."""
    given = {}
    if strategy == "accel_fsdp":
        assert "acme" in register()
        return {"accelerator": "acme", "devices": RANKS, "strategy": strategy}
    if strategy == "fsdp":
        given = {"auto_wrap_policy": {nn.Linear}, "state_dict_type": "sharded" if sharded else "full"}
    elif strategy == "model_parallel":
        given = {
            "data_parallel_size": RANKS,
            "tensor_parallel_size": 1,
            "save_distributed_checkpoint": sharded,
        }
        given |= {"parallelize_fn": shard} if fabric else {}
    if mesh:
        given |= {"device_mesh": tuple(mesh), "sharding_strategy": "HYBRID_SHARD"}
    if not own:
        ours = fabric_options if fabric else trainer_options
        return dict(ours(strategy=strategy, devices=RANKS, **given))
    theirs = fabric_strategies if fabric else strategies
    kinds = {"ddp": theirs.DDPStrategy, "model_parallel": theirs.ModelParallelStrategy}
    return {"accelerator": "cpu", "devices": RANKS, "strategy": kinds[strategy](**given)}


def train(*, strategy, own, folder, fabric=False, sharded=False, resume=None, precision="32-true", mesh=()):
    """An epoch, saved to `folder/saved`; with `resume` the second one."""
    given = {**options(strategy, own, fabric, sharded, list(mesh)), "precision": precision}
    saved = f"{folder}/saved"
    if fabric:
        model = _with_fabric(Fabric(**given), saved, resume)
    else:
        kind = Sharded if strategy == "model_parallel" else Digits
        model, trainer = fit(kind=kind, epochs=1 if resume is None else 2, resume=resume, **given)
        trainer.save_checkpoint(saved)
    return {
        "losses": model.losses,
        "accuracy": model.accuracy,
        "devices": sorted(model.devices),
        "dtypes": sorted(model.dtypes),
        **({} if sharded else numbers(saved)),
    }


def _with_fabric(fabric, saved, resume):
    fabric.launch()
    model = Digits()
    layers = fabric.setup_module(model.layers)
    optimizer = fabric.setup_optimizers(torch.optim.Adam(layers.parameters(), 1e-2))
    state = {"model": layers, "optimizer": optimizer}
    if resume is not None:
        fabric.load(resume, state)
    torch.manual_seed(1)
    for images, labels in fabric.setup_dataloaders(data()):
        loss = nn.functional.cross_entropy(layers(images), labels)
        fabric.backward(loss)
        fabric.clip_gradients(layers, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        model.losses.append(loss.item())
        model.devices |= {str(images.device), str(loss.device)}
    fabric.save(saved, state)
    return model


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
    return {"parameters": digest(parameters.values()), "moments": digest(moments)}


def digest(tensors):
    """The values, to the last bit."""
    parts = [tensor.contiguous().numpy().tobytes() for tensor in tensors]
    assert len(parts) >= 4
    return hashlib.sha256(b"".join(parts)).hexdigest()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    answers = {}
    for name, job in told["jobs"].items():
        here = Path(told["folder"]) / name
        here.mkdir(exist_ok=True)
        answers[name] = train(own=told.get("own", False), folder=str(here), **job)
    (Path(told["out"]) / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(answers))
    torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)
