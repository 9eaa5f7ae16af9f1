"""DeepSpeed's own CPUAdam, compiled, beside ours: the same bits, and in its own optimizer class."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

import torch
from accel_tests import adam_cases, deepspeeds_compiler

from accel_train.ops import compiler
from accel_train.ops.cpu_adam import CPUAdamBuilder

WHY_NOT = compiler.fault(compiler.Language.CXX) or ("" if shutil.which("ninja") else "ninja is not on PATH")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def theirs():
    """DeepSpeed's extension; compiled at the first use, which takes a minute, and kept by torch."""
    from deepspeed.ops.op_builder.cpu import CPUAdamBuilder as Theirs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in deepspeeds_compiler.VARIABLES.items():
            patch.setenv(name, value)
        return Theirs().load(verbose=False)


@pytest.fixture
def ours():
    return CPUAdamBuilder().load()


def assert_roundings_apart(found, expected):
    """Without AVX-512 DeepSpeed has no vector loop for bfloat16, and rounds each step otherwise.

    A result may differ by its own rounding, and by that of the state in each of twelve steps of 1e-2.
    """
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2 * 2.0**-8, atol=12e-2 * 2.0**-8)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 129, 5003, 40_007])
@pytest.mark.parametrize("case", adam_cases.CASES, ids=lambda case: case[0])
def test_every_step_has_the_same_bits(ours, theirs, case, count):
    found, expected = adam_cases.run(ours, case, count), adam_cases.run(theirs, case, count)
    if ours.capability == "AVX2" and torch.bfloat16 in case:
        assert_roundings_apart(found, expected)
    else:
        assert list(map(adam_cases.bits, found)) == list(map(adam_cases.bits, expected))


@pytest.mark.parametrize("state_in_float32", [True, False])
def test_deepspeeds_optimizer_runs_on_ours(ours, theirs, state_in_float32, monkeypatch):
    from deepspeed.ops.adam import cpu_adam

    def train(op):
        monkeypatch.setattr(cpu_adam, "CPUAdamBuilder", lambda: type("B", (), {"load": lambda self: op})())
        parameters = [torch.nn.Parameter(adam_cases.numbers(i, 100 + i).bfloat16()) for i in range(3)]
        optimizer = cpu_adam.DeepSpeedCPUAdam(
            parameters, lr=1e-2, weight_decay=0.1, fp32_optimizer_states=state_in_float32
        )
        for step in range(10):
            for parameter in parameters:
                parameter.grad = adam_cases.numbers(step, parameter.numel()).bfloat16()
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    found, expected = train(ours), train(theirs)
    if ours.capability == "AVX2" and not state_in_float32:
        assert_roundings_apart(found, expected)
    else:
        assert list(map(adam_cases.bits, found)) == list(map(adam_cases.bits, expected))
