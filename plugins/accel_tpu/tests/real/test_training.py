"""Trainings on the real TorchTPU, each against the same on the CPU."""

import json
import os
from pathlib import Path

import pytest
from accel_tests.children import run_python
from tpu_card import HERE, variables

EXAMPLE = Path(__file__).parents[4] / "examples" / "train_digits.py"
SUPPORT = Path(__file__).parents[4] / "tests" / "support"
CPU = {"DS_ACCELERATOR": "cpu"}


def program(*arguments, **more):
    """Give the losses of a program in a process of its own."""
    path = os.pathsep.join(
        filter(None, (os.environ.get("ACCEL_REAL_DEEPSPEED"), str(SUPPORT)))
    )
    environ = {
        **variables(),
        "PYTHONPATH": path if arguments[0] == "zero" else str(SUPPORT),
        **more,
    }
    return run_python(
        map(str, [HERE / "programs.py", *arguments]), environ, timeout=300
    ).answer


def test_the_main_example_learns():
    """examples/train_digits.py as it is."""
    command = [str(EXAMPLE), "--precision", "fp32", "--epochs", "4", "--json"]
    report = run_python(command, variables(), timeout=300).answer
    assert report["backend"] == "tpu"
    assert report["device"] == "TorchTPU on libpjrt_cpu.so"
    assert report["test_accuracy"] >= 0.93
    print(f"\n{json.dumps(report)}")


#: The two others run by night: each process imports torch, TorchTPU and DeepSpeed.
STAGES = [
    stage
    if stage in (1, 3)
    else pytest.param(stage, marks=pytest.mark.nightly(reason="as 1 and 3"))
    for stage in range(4)
]


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_of_zero_has_the_cpus_losses(stage):
    ours, cpu = program("zero", stage), program("zero", stage, **CPU)
    assert ours == pytest.approx(cpu, rel=1e-5)
    print(f"\nZeRO {stage}: tpu {ours}, cpu {cpu}")


def test_lightning_keeps_tied_weights():
    """TorchTPU's `module.to()` makes new parameters, unless torch swaps them: one weight would become two."""
    ours, cpu = program("tied"), program("tied", **CPU)
    assert ours == pytest.approx(cpu, rel=1e-5)
    assert ours[-1] < ours[0]


def test_a_checkpoint_goes_from_cpu_to_tpu_and_back(tmp_path):
    wandering = [
        loss
        for more in (CPU, {}, CPU)
        for loss in program("resumed", tmp_path / "wanders", **more)
    ]
    staying = [
        loss for _ in range(3) for loss in program("resumed", tmp_path / "stays", **CPU)
    ]
    assert wandering == pytest.approx(staying, rel=1e-5)
    assert wandering[-1] < wandering[0] / 2
