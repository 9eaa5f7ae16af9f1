"""DeepSpeed trains in bfloat16 on our accelerator wherever it does on its own: also where it is emulated."""

from __future__ import annotations

import pytest
from accel_tests.ports import free_port

TRAIN = """
import json
import deepspeed, torch

torch.manual_seed(0)
inputs, weights = torch.randn(64, 16), torch.randn(16, 4)
wanted = (inputs @ weights).bfloat16()
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
engine, *_ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 64,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    },
)
losses = []
for _ in range(30):
    loss = torch.nn.functional.mse_loss(engine(inputs.bfloat16()), wanted)
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
accelerator = deepspeed.get_accelerator()
answer = {
    "class": type(accelerator).__module__.partition(".")[0],
    "instructions": bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    "dtypes": [str(dtype) for dtype in accelerator.supported_dtypes()],
    "losses": [loss.hex() for loss in losses],
}
print("ANSWER", json.dumps(answer), flush=True)
"""
ACTIVATE = "from accel_train.deepspeed import activate\nactivate()\n"
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
SEVERAL = """
import os, sys
def refused(**variables):
    os.environ.update(variables)
    try:
        deepspeed.init_distributed(verbose=False)
    except ImportError as error:
        return str(error)
    finally:
        for name in variables:
            del os.environ[name]
import deepspeed
texts = [refused(OMPI_COMM_WORLD_SIZE="4"), refused(RANK="1")]
from accel_train.deepspeed import activate
activate()
texts += [refused(OMPI_COMM_WORLD_SIZE="4"), refused(RANK="1", MASTER_ADDR="here")]
print("ANSWER", __import__("json").dumps(texts), flush=True)
"""


@pytest.mark.nightly(reason="two trainings in oneDNN's slow emulation")
@pytest.mark.slow
def test_bfloat16_trains_on_a_processor_without_its_instructions(child, on_cpu):
    """Ours without the launcher's variables, for which DeepSpeed asks MPI and wants mpi4py."""
    runs = {}
    for prelude, launched in (("", {**ALONE, "MASTER_PORT": str(free_port())}), (ACTIVATE, {})):
        variables = {**on_cpu, **launched, "ONEDNN_MAX_CPU_ISA": "AVX2"}
        [runs[prelude]] = child(["-c", prelude + TRAIN], variables).answers
    theirs, ours = runs[""], runs[ACTIVATE]
    assert (theirs.pop("class"), ours.pop("class")) == ("deepspeed", "accel_core")
    assert theirs["instructions"] is False
    assert theirs == ours
    losses = [float.fromhex(loss) for loss in ours["losses"]]
    assert losses[-1] < losses[0] / 2


def test_one_of_several_processes_without_mpi4py_is_told_what_is_missing(child, on_cpu):
    """Also where DeepSpeed was imported first."""
    [[theirs, _, of_four, second]] = child(["-c", SEVERAL], on_cpu).answers
    assert theirs == "No module named 'mpi4py'"
    assert "OMPI_COMM_WORLD_SIZE=4 says that this is one of several processes" in of_four
    assert "needs RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT of each" in of_four
    assert "RANK=1 says" in second
    assert "needs LOCAL_RANK, WORLD_SIZE, MASTER_PORT of each" in second
    assert "accel deepspeed" in second
