"""Hugging Face Accelerate on our choice: the CPU as by its own rules, and `acme`, which they do not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

pytestmark = pytest.mark.slow

SCRIPT = "digits_accelerate.py"
CPU = {"environ": {"DS_ACCELERATOR": "cpu"}}
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


@pytest.fixture(scope="module")
def own_rules(ranks: Callable[..., Any]) -> dict[str, Any]:
    """An epoch with `Accelerator(cpu=True)`."""
    (answer,) = ranks(SCRIPT, own=True, **CPU)
    return dict(answer)


@pytest.fixture(scope="module")
def own_rules_of_two(ranks: Callable[..., Any]) -> list[dict[str, Any]]:
    """The same in two ranks."""
    answers: list[dict[str, Any]] = ranks(SCRIPT, own=True, torchrun=True, **CPU)
    return answers


@pytest.mark.parametrize(("environ", "device"), [(CPU, "cpu"), ({}, "acme:0")], ids=["cpu", "acme"])
def test_an_epoch_equals_its_own_cpu(
    environ: dict[str, Any], device: str, own_rules: dict[str, Any], ranks: Callable[..., Any], tmp_path: Path
) -> None:
    (answer,) = ranks(SCRIPT, checkpoints=str(tmp_path), **environ)
    assert answer == {**own_rules, "device": device, "data": device}
    assert answer["type"] == "NO"
    assert answer["losses"][-1] < answer["losses"][0] / 2


def test_two_ranks_on_the_cpu_equal_its_own(
    own_rules_of_two: list[dict[str, Any]], ranks: Callable[..., Any]
) -> None:
    assert ranks(SCRIPT, torchrun=True, **CPU) == own_rules_of_two
    assert own_rules_of_two[0]["type"] == "MULTI_CPU"


def test_two_ranks_on_acme_equal_the_cpus(
    own_rules_of_two: list[dict[str, Any]], ranks: Callable[..., Any], tmp_path: Path
) -> None:
    answers = ranks(SCRIPT, torchrun=True, checkpoints=str(tmp_path))
    for rank, (answer, cpus) in enumerate(zip(answers, own_rules_of_two, strict=True)):
        differ = {"type": "MULTI_GPU", "backend": "accl", "device": f"acme:{rank}", "data": f"acme:{rank}"}
        assert answer == {**cpus, **differ}
        assert answer["gathered"] == [0, 1]
        assert answer["wrapped"] == "DistributedDataParallel"


def test_bf16_runs_on_acme(ranks: Callable[..., Any], own_rules: dict[str, Any]) -> None:
    (answer,) = ranks(SCRIPT, mixed_precision="bf16")
    assert answer["device"] == "acme:0"
    assert answer["losses"] != own_rules["losses"]
    assert answer["losses"][-1] < answer["losses"][0] / 2


def test_accelerate_refuses_fp16_for_a_device_it_does_not_know(on_acme: Callable[..., Any]) -> None:
    assert on_acme("digits_accelerate:fp16").answer.endswith("(not 'acme').")


def test_too_late_is_reported(on_acme: Callable[..., Any]) -> None:
    said = on_acme("digits_accelerate:too_late").answer
    assert said.startswith("Accelerate has chosen cpu, and accel_core acme (device type acme)")
    assert "partial_state() before accelerate.Accelerator()" in said


def test_a_rank_without_a_device_of_its_own_is_refused(on_acme: Callable[..., Any]) -> None:
    environ = {**RANK, "ACCEL_SIMULATE": "acme:1"}
    said = on_acme("digits_accelerate:without_enough_devices", environ=environ).answer
    assert said.startswith("rank 1 on this host needs a device of its own, and sees 1 of acme")
