"""A small training with half of the optimizer offloaded, and a process without mpi4py."""

import os
from unittest import mock

import pytest
from accel_tests.forks import forked
from looks import activated

#: DeepSpeed makes tensors on what it calls `_name`.
SIZES = {
    "sub_group_size": 600,
    "reduce_bucket_size": 5000,
    "stage3_prefetch_bucket_size": 5000,
}
HALF_OFFLOADED = {
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5},
        **SIZES,
    },
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
    assert acc.name == "generic"
    assert acc._communication_backend_name == "accl"
    import deepspeed

    torch.manual_seed(0)
    inputs, weights = torch.randn(64, 16), torch.randn(16, 4)
    inputs, wanted = inputs.to("acme"), (inputs @ weights).to("acme")
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    )
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
        with (
            mock.patch.dict(os.environ, variables),
            pytest.raises(ImportError) as error,
        ):
            deepspeed.init_distributed(verbose=False)
        return str(error.value)

    of_mpi = {"PMI_RANK": "1", "PMI_SIZE": "4"}
    assert refused(**of_mpi) == "No module named 'mpi4py'"
    activated()
    of_four = refused(**of_mpi)
    assert "WORLD_SIZE=4 shows that this is one of several processes" in of_four
    assert "needs LOCAL_RANK, MASTER_ADDR in each" in of_four
    second = refused(RANK="1", MASTER_ADDR="here")
    assert "RANK=1 shows" in second
    assert "needs LOCAL_RANK, WORLD_SIZE, MASTER_PORT in each" in second
    assert "accel deepspeed" in second
