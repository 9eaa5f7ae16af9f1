"""Transformers' and TRL's trainers on our choice: `acme`, which they do not know, trains as the CPU does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("trl")

pytestmark = pytest.mark.slow

SCRIPT = "trainer_gpt.py"
CPU = {"environ": {"DS_ACCELERATOR": "cpu"}}


@pytest.fixture(scope="module")
def own(ranks: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By their own rules, on the CPU."""
    (answer,) = ranks(SCRIPT, how="own", folder=str(tmp_path_factory.mktemp("own")), **CPU)
    assert answer["losses"][-1] < 0.8 * answer["losses"][0]
    assert answer["resumed"] == answer["parameters"]
    return dict(answer)


def test_partial_state_holds_for_their_arguments(
    own: dict[str, Any], ranks: Callable[..., Any], tmp_path: Path
) -> None:
    """In the order that docs/howto/trainers.md gives: `partial_state()`, `TrainingArguments`."""
    (answer,) = ranks(SCRIPT, how="order", folder=str(tmp_path))
    assert answer == {**own, "device": "acme:0", "data": "acme:0", "weights": "acme:0"}


def test_the_mixin_on_the_cpu_is_their_own(
    own: dict[str, Any], ranks: Callable[..., Any], tmp_path: Path
) -> None:
    assert ranks(SCRIPT, how="mixin", folder=str(tmp_path), **CPU) == [own]


def test_trls_sft_trains_on_acme_as_on_the_cpu(ranks: Callable[..., Any], tmp_path: Path) -> None:
    """Its configuration is a subclass of `TrainingArguments`."""
    (cpu,) = ranks(SCRIPT, how="own", trl=True, folder=str(tmp_path / "cpu"), **CPU)
    (answer,) = ranks(SCRIPT, how="mixin", trl=True, folder=str(tmp_path / "acme"))
    assert answer == {**cpu, "device": "acme:0", "data": "acme:0", "weights": "acme:0"}


def test_two_ranks_on_acme_equal_two_on_the_cpu(ranks: Callable[..., Any], tmp_path: Path) -> None:
    more = {"ranks": 2, "torchrun": True}
    cpus = ranks(SCRIPT, how="own", folder=str(tmp_path / "cpu"), **more, **CPU)
    answers = ranks(SCRIPT, how="mixin", folder=str(tmp_path / "acme"), **more)
    assert len(answers) == len(cpus) == 2
    for rank, (answer, cpu) in enumerate(zip(answers, cpus, strict=True)):
        where = dict.fromkeys(("device", "data", "weights"), f"acme:{rank}")
        assert answer == {**cpu, **where, "backend": "accl"}
        assert (answer["world"], answer["parallel"]) == (2, "distributed")
    assert answers[0]["parameters"] == answers[1]["parameters"] == answers[0]["resumed"]


def test_two_ranks_without_the_mixin_are_refused(ranks: Callable[..., Any], tmp_path: Path) -> None:
    """Transformers would let each rank train by itself, with one warning."""
    answers = ranks(SCRIPT, how="order", folder=str(tmp_path), ranks=2, torchrun=True)
    for answer in answers:
        assert "each rank would train by itself, as they do not know acme" in answer["refused"]
        assert "class Arguments(AcceleratorArguments, TrainingArguments)" in answer["refused"]


def test_what_leads_elsewhere_is_refused(on_acme: Callable[..., Any]) -> None:
    use_cpu, deepspeed, other = on_acme("trainer_gpt:wrong").answer
    assert use_cpu == "use_cpu=True, and accel_core has chosen acme: leave it out, or set DS_ACCELERATOR=cpu"
    assert "accel_train.deepspeed.activate()" in deepspeed

    # A device of Transformers' ladder is there beside ours.
    assert "made for acme" in other
    assert "it would be made for npu" in other
