"""DeepSpeed on Metal: what it reports of memory and time, as torch had it before 2.13; its fused Adam."""

from __future__ import annotations

import pytest
from accel_tests import children
from accel_tests.on_disk import install_real_plugin
from accel_tests.on_simulated import environment

from accel_simulated import VENDORS, CannotBuildError, build

REPORTS = """
import json
import torch
from accel_train.deepspeed import activate
activate()
import deepspeed
from deepspeed.runtime.utils import see_memory_usage
from deepspeed.utils.timer import SynchronizedWallClockTimer, ThroughputTimer

see_memory_usage("here", force=True)
timers = SynchronizedWallClockTimer()
timers("step").start()
torch.ones(8, device="mps").sum().item()
timers("step").stop()
elapsed = timers("step").elapsed()
adam = deepspeed.get_accelerator().operators()["FusedAdamBuilder"]
from deepspeed.ops.adam import FusedAdam
weight = torch.nn.Parameter(torch.ones(8, device="mps"))
optimizer = FusedAdam([weight], lr=0.1)
weight.sum().backward()
optimizer.step()
operator = [adam.candidates[0].reason, adam.used.provider, round(weight.detach().cpu()[0].item(), 3)]
name = type(deepspeed.get_accelerator()).__name__
print("ANSWER", json.dumps([name, elapsed > 0, timers.memory_usage(), operator]))
"""


@pytest.mark.slow
def test_memory_and_time_are_reported_and_adam_steps(child, tmp_path):
    try:
        build(VENDORS["mps"].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    install_real_plugin(tmp_path, "mps")
    wanted = {"DS_ACCELERATOR": "mps", "ACCEL_SIMULATE_OLD_METAL": "1", "OMP_NUM_THREADS": "1"}
    ended = child(["-c", REPORTS], children.untraced(environment("mps", wanted, path=[tmp_path])))
    [[name, positive, usage, operator]] = ended.answers
    missing = (
        "DeepSpeed's wheel lacks its source csrc/mps/fused_adam.metal: install DeepSpeed from its repository"
    )
    assert operator == [missing, "accel-train portable", 0.9]
    assert (name, positive) == ("MPSAccelerator", True)
    assert "here" in ended.stdout
    assert "Max_MA" in ended.stdout
    assert "max_mem_allocated" in usage
