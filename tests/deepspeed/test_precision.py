"""DeepSpeed trains in bfloat16 on our accelerator wherever it does on its own: also where it is emulated."""

from __future__ import annotations

import pytest
from accel_testing.ports import free_port

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
ACTIVATE = "from accel_core.integrations.deepspeed import activate\nactivate()\n"
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@pytest.mark.slow
def test_bfloat16_trains_on_a_processor_without_its_instructions(child, on_cpu):
    runs = {}
    for prelude in ("", ACTIVATE):
        variables = {**on_cpu, **ALONE, "ONEDNN_MAX_CPU_ISA": "AVX2", "MASTER_PORT": str(free_port())}
        [runs[prelude]] = child(["-c", prelude + TRAIN], variables).answers
    theirs, ours = runs[""], runs[ACTIVATE]
    assert (theirs.pop("class"), ours.pop("class")) == ("deepspeed", "accel_core")
    assert theirs["instructions"] is False
    assert theirs == ours
    losses = [float.fromhex(loss) for loss in ours["losses"]]
    assert losses[-1] < losses[0] / 2
