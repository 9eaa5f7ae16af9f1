"""Small trainings: half of the optimizer offloaded, page-locked memory by DeepSpeed's operator, Metal."""

import contextlib
import io
import os
from unittest import mock

import pytest
from accel_tests.forks import forked
from looks import activated

# ---------------------------------------------------------------------------- precision
# A small training with half of the optimizer offloaded, in a process without MPI.


#: DeepSpeed makes tensors on what it calls `_name`.
SIZES = {"sub_group_size": 600, "reduce_bucket_size": 5000, "stage3_prefetch_bucket_size": 5000}
HALF_OFFLOADED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}, **SIZES},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
}


@pytest.fixture(scope="session")
def on_generic(simulated):
    """The simulated device and no plugin for it."""
    return simulated("acme", DS_ACCELERATOR="generic")


@forked("generic")
def test_half_of_the_optimizer_stays_on_a_device_that_no_plugin_knows():
    """Without the launcher's variables, for which DeepSpeed asks MPI and wants mpi4py."""
    import torch
    import torch_acme  # noqa: F401 - no plugin imports it

    acc = activated()[0].accelerator
    assert (acc.name, acc._communication_backend_name) == ("generic", "accl")
    import deepspeed

    torch.manual_seed(0)
    inputs, weights = torch.randn(64, 16), torch.randn(16, 4)
    inputs, wanted = inputs.to("acme"), (inputs @ weights).to("acme")
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    config = {"train_micro_batch_size_per_gpu": 64, **HALF_OFFLOADED}
    engine, *_ = deepspeed.initialize(model=model, config=config)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(engine(inputs), wanted)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert set(engine.optimizer.subgroup_to_device.values()) == {"acme", "cpu"}


@forked("cpu")
def test_one_of_several_processes_without_mpi4py_is_told_what_is_missing():
    """Also where DeepSpeed was imported first."""
    import deepspeed

    def refused(**variables):
        with mock.patch.dict(os.environ, variables), pytest.raises(ImportError) as error:
            deepspeed.init_distributed(verbose=False)
        return str(error.value)

    assert refused(OMPI_COMM_WORLD_SIZE="4") == "No module named 'mpi4py'"
    activated()
    of_four = refused(OMPI_COMM_WORLD_SIZE="4")
    assert "OMPI_COMM_WORLD_SIZE=4 says that this is one of several processes" in of_four
    assert "needs RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in each" in of_four
    second = refused(RANK="1", MASTER_ADDR="here")
    assert "RANK=1 says" in second
    assert "needs LOCAL_RANK, WORLD_SIZE, MASTER_PORT in each" in second
    assert "accel deepspeed" in second


# ---------------------------------------------------------------------------- native pins
# `DS_PIN_MEMORY_BACKEND=native`: DeepSpeed's own page-locked memory, by its compiled operator.


@pytest.mark.nightly(reason="it compiles for most of a minute")
@pytest.mark.parametrize("device", ["cpu", "acme"])
@forked(DS_PIN_MEMORY_BACKEND="native")
def test_memory_is_locked_by_deepspeed_and_registered_with_the_accelerator(device):
    """Also for a device that DeepSpeed has never heard of: its operator locks memory of the host."""
    import torch

    acc, calls = activated()[0].accelerator, []
    acc.register_host_memory = lambda address, size: calls.append(("register", size >= 16)) or True
    acc.unregister_host_memory = lambda address: calls.append(("unregister", True))
    source = torch.arange(4.0)
    pinned = acc.pin_memory(source)
    assert pinned is not source
    assert pinned.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert acc.pin_memory(source.reshape(2, 2), make_copy=False, match_shape=False).shape == (4,)
    assert acc.pin_empty(2, 2, dtype=torch.float32).shape == (2, 2)
    assert [acc.is_pinned(pinned), acc.is_pinned(source)] == [True, False]
    acc.unpin_memory(pinned)
    assert (calls[0], calls[-1]) == (("register", True), ("unregister", True))


# ---------------------------------------------------------------------------- metal
# DeepSpeed on Metal: what it reports of memory and time, as torch had it before 2.13; its fused Adam.


@pytest.fixture(scope="session")
def on_mps(simulated):
    return simulated("mps", plugin=True, ACCEL_SIMULATE_OLD_METAL="1")


@forked("mps")
def test_memory_and_time_are_reported_and_adam_steps():
    import torch

    acc = activated()[0].accelerator
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
    adam = acc.operators()["FusedAdamBuilder"]
    lacks = "lacks its source csrc/mps/fused_adam.metal: install DeepSpeed from its repository"
    assert adam.candidates[0].reason == f"DeepSpeed's wheel {lacks}"
    assert adam.used.provider == "accel-train portable"
    weight = torch.nn.Parameter(torch.ones(8, device="mps"))
    optimizer = FusedAdam([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert weight.detach().cpu()[0].item() == pytest.approx(0.9, abs=5e-4)
