"""What DeepSpeed reports of memory and time on Metal, as torch had it before 2.13: nothing of it raises."""

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
print("ANSWER", json.dumps([type(deepspeed.get_accelerator()).__name__, elapsed > 0, timers.memory_usage()]))
"""


@pytest.mark.slow
def test_memory_and_time_are_reported(child, tmp_path):
    try:
        build(VENDORS["mps"].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    install_real_plugin(tmp_path, "mps")
    wanted = {"DS_ACCELERATOR": "mps", "ACCEL_SIMULATE_OLD_METAL": "1", "OMP_NUM_THREADS": "1"}
    ended = child(["-c", REPORTS], children.untraced(environment("mps", wanted, path=[tmp_path])))
    [[name, positive, usage]] = ended.answers
    assert (name, positive) == ("MPSAccelerator", True)
    assert "here" in ended.stdout
    assert "Max_MA" in ended.stdout
    assert "max_mem_allocated" in usage
