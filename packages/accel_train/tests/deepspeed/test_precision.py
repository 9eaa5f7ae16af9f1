"""Small trainings: bfloat16 where it is emulated, half of the optimizer offloaded; ranks without MPI."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from accel_tests.forks import forked
from accel_tests.ports import free_port
from looks import activated

ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
BFLOAT16 = {
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}
#: DeepSpeed makes tensors on what it calls `_name`.
HALF_OFFLOADED = {
    "zero_optimization": {
        "stage": 3,
        "sub_group_size": 600,
        "reduce_bucket_size": 5000,
        "stage3_prefetch_bucket_size": 5000,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5},
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
}


def trained(config, dtype):
    """The losses of 30 steps of a small network, and DeepSpeed's engine."""
    import deepspeed
    import torch

    device = deepspeed.get_accelerator().device_name()
    torch.manual_seed(0)
    inputs, weights = torch.randn(64, 16), torch.randn(16, 4)
    wanted = (inputs @ weights).to(device, dtype)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    config = {"train_micro_batch_size_per_gpu": 64, **config}
    engine, *_ = deepspeed.initialize(model=model, config=config)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(engine(inputs.to(device, dtype)), wanted)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    return losses, engine


@pytest.mark.nightly(reason="the processor's instructions, whoever is asked, decide the same lines of ours")
@forked("cpu", ONEDNN_MAX_CPU_ISA="AVX2")
def test_bfloat16_trains_on_a_processor_without_its_instructions(tmp_path):
    """Ours without the launcher's variables, for which DeepSpeed asks MPI and wants mpi4py."""
    import torch

    def seen():
        import deepspeed

        acc = deepspeed.get_accelerator()
        losses, _ = trained(BFLOAT16, torch.bfloat16)
        return type(acc).__module__.partition(".")[0], repr([losses, acc.supported_dtypes()])

    assert not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if os.fork() == 0:
        os.environ.update(ALONE, MASTER_PORT=str(free_port()))
        whose, answer = seen()
        assert whose == "deepspeed"
        (tmp_path / "theirs").write_text(answer)
        os._exit(0)
    assert os.wait()[1] == 0
    activated()
    assert seen() == ("accel_core", (tmp_path / "theirs").read_text())


@pytest.fixture(scope="session")
def on_generic(simulated):
    """The simulated device and no plugin for it."""
    return simulated("acme", DS_ACCELERATOR="generic")


@pytest.mark.slow
@forked("generic", **ALONE)
def test_half_of_the_optimizer_stays_on_a_device_that_no_plugin_knows():
    import torch
    import torch_acme  # noqa: F401 - no plugin imports it

    os.environ["MASTER_PORT"] = str(free_port())
    acc = activated()[0].accelerator
    assert (acc.name, acc._communication_backend_name) == ("generic", "accl")
    _, engine = trained(HALF_OFFLOADED, torch.float32)
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
