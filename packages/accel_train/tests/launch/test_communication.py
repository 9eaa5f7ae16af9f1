"""The communication backend of a device, read from torch's table before a process starts."""

import pytest

pytest.importorskip("torch")

from accel_core import LaunchError
from accel_train.launch import launch
from accel_train.staged import unusable_reason

TOLD = [
    *((name, "cpu", "") for name in ("gloo", "cpu:gloo", "cpu:gloo,cuda:gloo", "GLOO")),
    (
        "accl",
        "cpu",
        "torch.distributed has no communication backend 'accl' in this process, expected one of",
    ),
    (
        "gloo",
        "npu",
        "the communication backend 'gloo' is for cpu and cuda, not for npu. Next step: use staged",
    ),
    (
        "cpu:gloo",
        "npu",
        "'cpu:gloo' does not name a communication backend for npu. Next step: use staged",
    ),
    ("cpu:gloo,npu:accl", "npu", "no communication backend 'accl' in this process"),
]


@pytest.mark.parametrize(("name", "device", "said"), TOLD)
def test_what_torch_has_not_is_said_with_what_it_has(name, device, said):
    told = unusable_reason(name, device)
    assert said in told if said else told == ""


def test_the_launcher_finds_it_before_any_rank_starts(cpu_backend, monkeypatch):
    for key, value in cpu_backend("carbon", communication_backend="smoke").items():
        monkeypatch.setenv(key, value)
        if key == "PYTHONPATH":
            monkeypatch.syspath_prepend(value)  # which is what the child gets
    with pytest.raises(
        LaunchError,
        match=r"torch\.distributed has no communication backend 'smoke' in this process",
    ):
        launch.examine_machine(None)
    assert launch.examine_machine(None, "gloo").communication == "gloo"


def test_a_rank_says_which_declaration_is_wrong(ranks, cpu_backend):
    made = ranks(
        "init_process_group()",
        1,
        **cpu_backend("carbon", communication_backend="smoke"),
    )
    assert made[0].returncode == 1
    assert (
        "carbon declares the communication backend 'smoke', but torch.distributed has no"
        in made[0].stderr
    )
