"""A script that trains in several processes; each writes what it saw to `out`.

Its one argument is JSON: `out`, `own` for Lightning's own accelerator and strategy, `fabric` for Fabric, and
the options of ours.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from lightning.fabric import Fabric
from lightning_digits import fit, fit_with_fabric, told

from accel_train.lightning import fabric_options, trainer_options


def train(own=False, fabric=False, **asked):
    """An epoch, and what this rank saw of it."""
    lightnings = {"accelerator": "cpu", "strategy": "ddp", **asked}
    if fabric:
        made = Fabric(**(lightnings if own else fabric_options(**asked)))
        model = fit_with_fabric(made)
        mean = made.all_reduce(torch.tensor(float(made.global_rank), device=made.device)).item()
        return {"rank": made.global_rank, "mean": mean, **told(model)}
    model, trainer = fit(**(lightnings if own else trainer_options(**asked)))
    return {
        "rank": trainer.global_rank,
        "world": trainer.world_size,
        "backend": torch.distributed.get_backend(),
        **told(model),
    }


if __name__ == "__main__":
    told_to = json.loads(sys.argv[1])
    out = Path(told_to.pop("out"))
    seen = train(**told_to)
    (out / f"{seen['rank']}.json").write_text(json.dumps(seen))
    torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)
