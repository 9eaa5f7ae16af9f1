"""`init_process_group("staged")` in a program that imports nothing of ours, as torch 2.14 does it."""

import pytest
from accel_tests.on_simulated import run_on

torch = pytest.importorskip("torch")


#: Steps of `Backend._ensure_backend_registered`, torch 2.14.1, distributed/distributed_c10d.py:542.
SCRIPT = """
import json, os, sys
from importlib.metadata import entry_points
import torch
import torch.distributed as dist
if not hasattr(dist.Backend, "_ensure_backend_registered"):
    (entry,) = [e for e in entry_points(group="torch.distributed.backends") if e.name.lower() == "staged"]
    before = "STAGED" in dist.Backend._plugins
    entry.load()()
    assert not before and "STAGED" in dist.Backend._plugins
dist.init_process_group("staged", init_method="tcp://127.0.0.1:" + os.environ["MASTER_PORT"],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
value = torch.full((3,), 1.0 + dist.get_rank(), device=torch.accelerator.current_accelerator())
dist.all_reduce(value)
print(json.dumps([str(value.device), value.tolist()]))
dist.destroy_process_group()
"""


def test_the_process_group_is_there_by_its_name():
    assert run_on("acme", SCRIPT, processes=2).answers == [["acme:0", [3.0] * 3]] * 2
