"""Hugging Face Accelerate on our choice: the CPU as by its own rules, and `acme`, which they do not know."""

import os

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

from accel_tests.forks import forked
from accel_tests.ports import free_port

from accel_core import IntegrationError

SCRIPT = "digits_accelerate.py"
CPU = {"environ": {"DS_ACCELERATOR": "cpu"}}


@pytest.fixture(scope="module", params=[False, True], ids=["one", "two"])
def torchrun(request):
    return request.param


@pytest.fixture(scope="module")
def own_rules(ranks, torchrun):
    """An epoch with `Accelerator(cpu=True)` in one process, and in two ranks."""
    return ranks(SCRIPT, own=True, torchrun=torchrun, **CPU)


@pytest.mark.parametrize("device", ["cpu", "acme"])
def test_an_epoch_equals_its_own_cpu(device, torchrun, own_rules, ranks, tmp_path):
    on = CPU if device == "cpu" else {}
    answers = ranks(SCRIPT, torchrun=torchrun, checkpoints=str(tmp_path), **on)
    assert len(answers) == len(own_rules) == 1 + torchrun
    for rank, (answer, own) in enumerate(zip(answers, own_rules, strict=True)):
        places = (
            dict.fromkeys(("device", "data"), f"acme:{rank}")
            if device == "acme"
            else {}
        )
        ranked = {"type": "MULTI_GPU", "backend": "accl"} if torchrun and places else {}
        # In one process Accelerate says "cpu:0" to its own.
        assert answer == {
            **own,
            **(places or {key: answer[key] for key in ("device", "data")}),
            **ranked,
        }
        assert own["type"] == ("MULTI_CPU" if torchrun else "NO")
        assert answer["device"].startswith(device)
        if torchrun:
            assert answer["gathered"] == [0, 1]
            assert answer["wrapped"] == "DistributedDataParallel"


def test_bf16_runs_on_acme(ranks):
    in_bf16, (in_float32,) = (
        ranks(SCRIPT, mixed_precision="bf16"),
        ranks(SCRIPT, own=True, **CPU),
    )
    assert in_bf16[0]["device"] == "acme:0"
    assert in_bf16[0]["losses"] != in_float32["losses"]


@forked("acme")
def test_too_late_is_reported():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    from accel_train.accelerate import partial_state

    Accelerator()
    with pytest.raises(IntegrationError) as error:
        partial_state()
    words = (
        "Accelerate has chosen cpu, but accel-core has chosen acme (device type acme)"
    )
    assert str(error.value).startswith(words)
    assert "partial_state() before the first accelerate.Accelerator()" in str(
        error.value
    )
    AcceleratorState._reset_state(reset_partial_state=True)
    partial_state()
    assert Accelerator().device.type == "acme"


@pytest.fixture(scope="session")
def on_one(on_acme):
    """One device for all ranks."""
    return {**on_acme, "ACCEL_SIMULATE": "acme:1"}


@forked("one", RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")
def test_a_rank_without_a_device_of_its_own_is_refused():
    from accel_train.accelerate import partial_state

    words = "^rank 1 of this host needs the acme device with index 1, because"
    with pytest.raises(IntegrationError, match=words):
        partial_state()
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(free_port())
    assert partial_state().device.index == 0
