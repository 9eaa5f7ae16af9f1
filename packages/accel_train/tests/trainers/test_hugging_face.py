"""Hugging Face's trainers on `acme`: each row equals their own training on the CPU, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accel_tests.ports import free_port

for needed in ("torch", "transformers", "trl", "peft", "sentence_transformers"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.slow

SCRIPT = "hugging_face.py"
IN_RANKS = ["peft", "sft", "dpo", "grpo", "seq2seq", "sentence"]
ALONE = [*IN_RANKS, "bf16", "inference"]
PLACES = ("device", "data", "weights", "places")
Runs = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def trained(ranks: Callable[..., Any], folder: Path, jobs: list[str], **how: Any) -> Runs:
    """On the CPU and on `acme`, with all rows in one process each: importing TRL takes ten seconds."""
    own = {"own": True, "environ": {"DS_ACCELERATOR": "cpu"}}
    cpu = ranks(SCRIPT, folder=str(folder / "cpu"), jobs=jobs, **own, **how)
    return cpu, ranks(SCRIPT, folder=str(folder / "acme"), jobs=jobs, **how)


@pytest.fixture(scope="module")
def alone(ranks: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return trained(ranks, tmp_path_factory.mktemp("alone"), ALONE)


@pytest.fixture(scope="module")
def in_ranks(ranks: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return trained(ranks, tmp_path_factory.mktemp("ranks"), IN_RANKS, torchrun=True)


def compare(job: str, runs: Runs) -> None:
    cpus, answers = runs
    for rank, (cpu, answer) in enumerate(zip(cpus, answers, strict=True)):
        theirs = [cpu[job].pop(place, "cpu") for place in PLACES if place != "places"]
        assert all(place.startswith("cpu") for place in theirs)  # which Accelerate numbers in ranks
        places = [answer[job].pop(place) for place in PLACES if place in answer[job]]
        assert set(places[:2]) == {f"acme:{rank}"}
        cpu[job].pop("places", None)
        assert answer[job] == cpu[job]


@pytest.mark.parametrize("job", ALONE)
def test_one_process_equals_the_cpus(job: str, alone: Runs) -> None:
    compare(job, alone)


@pytest.mark.nightly(reason="two ranks train each row again, which one process does by day")
@pytest.mark.parametrize("job", IN_RANKS)
def test_two_ranks_equal_two_on_the_cpu(job: str, in_ranks: Runs) -> None:
    compare(job, in_ranks)


def test_the_rows_did_what_they_are_named_for(alone: Runs) -> None:
    """So that none is equal because it did nothing."""
    _, (answer,) = alone
    for job in ("bf16", "seq2seq", "sentence"):
        assert answer[job]["losses"][-1] < answer[job]["losses"][0]
    assert answer["peft"]["resumed"] == answer["peft"]["parameters"]
    assert any("eval_loss" in line for line in answer["peft"]["metrics"])
    assert any("eval_sum" in line for line in answer["seq2seq"]["metrics"])
    assert len(answer["seq2seq"]["predicted"]) == 8
    assert len({line["reward"] for line in answer["grpo"]["metrics"] if "reward" in line}) > 1
    assert any("rewards/margins" in line for line in answer["dpo"]["metrics"])


WRONG = """
import json
import transformers, accelerate
from transformers import TrainingArguments
import accel_core
from accel_train.accelerate import partial_state
from accel_train.transformers import AcceleratorArguments

def said(call):
    try:
        call()
    except accel_core.IntegrationError as error:
        return str(error)

class Arguments(AcceleratorArguments, TrainingArguments): pass
def behind():
    class Wrong(TrainingArguments, AcceleratorArguments): pass
def changed():
    Theirs = type("TrainingArguments", (), {"__module__": "transformers"})
    class Wrong(AcceleratorArguments, Theirs): pass
answers = [said(behind), said(changed), said(lambda: Arguments("out", fp16=True))]
partial_state()
answers += [said(lambda: partial_state("cpu")), str(Arguments("out").device)]
print(json.dumps(answers))
"""


def test_wrong_use_is_refused_in_one_message(on_acme: Callable[..., Any]) -> None:
    """With both frameworks imported before ours, which does no harm."""
    behind, changed, fp16, twice, device = on_acme(WRONG).answer
    assert behind.endswith("Write class Arguments(AcceleratorArguments, TrainingArguments)")
    assert "has no _setup_devices" in changed
    assert changed.endswith("pip install transformers==5.23.0")
    assert fp16.startswith("fp16=True: Accelerate scales losses on xpu, cuda")
    assert "not on acme. Use bf16=True" in fp16
    assert twice.startswith("partial_state() was called for acme, and now for cpu")
    assert device == "acme:0"


OLD = """
import json, os, sys, types
import accelerate
import accel_core
from accel_train.accelerate import partial_state

class Older(accelerate.PartialState):
    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        return ("gloo", accelerate.DistributedType.MULTI_CPU)  # as 1.1.0 did

accelerate.PartialState = Older
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
try:
    partial_state()
except accel_core.IntegrationError as error:
    print(json.dumps(str(error)))
"""


def test_an_older_accelerate_is_named(on_acme: Callable[..., Any]) -> None:
    said = on_acme(OLD.replace("29999", str(free_port()))).answer
    assert "does not start acme's ranks: Your assigned backend accl is not available, please use gloo" in said
    assert said.endswith("this release is too old: pip install -U accelerate")
