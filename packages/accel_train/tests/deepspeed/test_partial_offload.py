"""ZeRO-3 with half of the optimizer offloaded: DeepSpeed makes tensors on what it calls `_name`."""

from __future__ import annotations

import pytest
from accel_tests import children
from accel_tests.on_simulated import environment
from accel_tests.ports import free_port

from accel_simulated import VENDORS, CannotBuildError, build

TRAIN = """
import json
from accel_train.deepspeed import activate
activate()
import deepspeed, torch

accelerator = deepspeed.get_accelerator()
torch.manual_seed(0)
inputs, weights = torch.randn(32, 16), torch.randn(16, 4)
wanted = (inputs @ weights).to(accelerator.device_name())
inputs = inputs.to(accelerator.device_name())
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
engine, *_ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 32,
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 600,
            "reduce_bucket_size": 5000,
            "stage3_prefetch_bucket_size": 5000,
            "offload_optimizer": {"device": "cpu", "ratio": 0.5},
        },
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    },
)
losses = []
for _ in range(20):
    loss = torch.nn.functional.mse_loss(engine(inputs), wanted)
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
places = sorted(set(engine.optimizer.subgroup_to_device.values()))
print("ANSWER", json.dumps([accelerator.name, accelerator._communication_backend_name, places, losses]))
"""
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@pytest.mark.slow
def test_half_of_the_optimizer_stays_on_a_device_that_no_plugin_knows(child):
    try:
        build(VENDORS["acme"].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    wanted = {**ALONE, "DS_ACCELERATOR": "generic", "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    run = "import torch, torch_acme\n" + TRAIN
    [[name, communication, places, losses]] = child(
        ["-c", run], children.untraced(environment("acme", wanted)), timeout=400
    ).answers
    assert (name, communication) == ("generic", "accl")
    assert places == ["acme", "cpu"]
    assert losses[-1] < losses[0] / 2
