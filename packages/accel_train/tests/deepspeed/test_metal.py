"""DeepSpeed on simulated MPS: reported memory and time, as torch had them before 2.13, and fused Adam."""

import contextlib
import io

import pytest
from accel_tests.forks import forked
from looks import activated


@pytest.fixture(scope="session")
def on_mps(simulated):
    return simulated("mps", plugin=True, ACCEL_SIMULATE_OLD_METAL="1")


@forked("mps")
def test_memory_and_time_are_reported_and_adam_steps():
    import torch

    acc = activated()[0].accelerator
    from deepspeed.comm import init_distributed
    from deepspeed.comm.torch import _needs_cpu_staging
    from deepspeed.ops.adam import FusedAdam
    from deepspeed.runtime.utils import see_memory_usage
    from deepspeed.utils.timer import SynchronizedWallClockTimer

    assert type(acc).__name__ == "MPSAccelerator"
    with contextlib.redirect_stdout(io.StringIO()):
        see_memory_usage("here", force=True)
    timers = SynchronizedWallClockTimer()
    timers("step").start()
    torch.ones(8, device="mps").sum().item()
    timers("step").stop()
    assert timers("step").elapsed() > 0
    assert "max_mem_allocated" in timers.memory_usage()
    init_distributed(acc.communication_backend_name(), verbose=False)
    assert not _needs_cpu_staging(torch.ones(1, device="mps")), "staged copies them"
    adam = acc.operators()["FusedAdamBuilder"]
    lacks = "lacks the source file csrc/mps/fused_adam.metal: install DeepSpeed from its repository"
    assert adam.candidates[0].reason == f"DeepSpeed's wheel {lacks}"
    assert adam.used.provider == "accel-train portable"
    weight = torch.nn.Parameter(torch.ones(8, device="mps"))
    optimizer = FusedAdam([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert weight.detach().cpu()[0].item() == pytest.approx(0.9, abs=5e-4)
