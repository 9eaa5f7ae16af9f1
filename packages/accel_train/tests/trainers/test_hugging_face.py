"""Hugging Face's trainers on `acme`: each row equals their own training on the CPU, bit for bit."""

import functools
import os

import pytest
from accel_tests.forks import forked
from accel_tests.ports import free_port

for needed in ("torch", "transformers", "trl", "peft", "sentence_transformers"):
    pytest.importorskip(needed)

import accel_core  # noqa: E402 - without these nothing here runs

SCRIPT = "hugging_face.py"
CPU = {"environ": {"DS_ACCELERATOR": "cpu"}}
BY_DAY, BY_NIGHT = ("gpt",), ("peft", "sft", "dpo", "grpo", "seq2seq", "sentence")
#: The last one changes the process.
ALONE = (*BY_DAY, *BY_NIGHT, "bf16", "inference", "in_order")
PLACES = ("device", "weights", "data", "places")


def trained(ranks, folder, jobs, **how):
    """On the CPU and on `acme`, with all rows in one process each: importing TRL takes ten seconds."""
    cpu = ranks(SCRIPT, folder=str(folder / "cpu"), jobs=jobs, own=True, **CPU, **how)
    return cpu, ranks(SCRIPT, folder=str(folder / "acme"), jobs=jobs, **how)


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory):
    """`runs(jobs)`: trained once, in that many ranks."""

    @functools.cache
    def run(jobs, count=1):
        return trained(
            ranks, tmp_path_factory.mktemp("trained"), list(jobs), torchrun=count > 1
        )

    return run


def compare(job, runs):
    cpus, answers = runs
    for rank, (cpu, answer) in enumerate(zip(cpus, answers, strict=True)):
        expected = {key: value for key, value in cpu[job].items() if key not in PLACES}
        expected |= (
            {"backend": "accl"} if expected.get("parallel") == "distributed" else {}
        )
        theirs = [cpu[job].get(place, "cpu") for place in PLACES if place != "places"]
        assert all(
            place.startswith("cpu") for place in theirs
        )  # which Accelerate numbers in ranks
        found = [answer[job][place] for place in PLACES if place in answer[job]]
        assert set(found if job == "gpt" else found[:2]) == {f"acme:{rank}"}
        assert {
            key: value for key, value in answer[job].items() if key not in PLACES
        } == expected


@pytest.mark.parametrize("job", ALONE)
def test_one_process_equals_the_cpus(job, runs):
    compare(job, runs(ALONE))


@pytest.mark.parametrize("job", BY_DAY)
def test_two_ranks_equal_two_on_the_cpu(job, runs):
    compare(job, runs(BY_DAY, 2))
    _, answers = runs(BY_DAY, 2)
    assert [answer[job]["parallel"] for answer in answers] == ["distributed"] * 2
    parameters = {
        answer[job][key] for answer in answers for key in ("parameters", "resumed")
    }
    assert len(parameters) == 1


@pytest.mark.nightly(
    reason="the ranks' start and the trainer's loop are those of the row by day"
)
@pytest.mark.parametrize("job", BY_NIGHT)
def test_two_ranks_of_the_others_equal_two_on_the_cpu(job, runs):
    compare(job, runs(BY_NIGHT, 2))


def test_the_rows_did_what_they_are_named_for(runs):
    """So that none is equal because it did nothing."""
    _, (answer,) = runs(ALONE)
    for job in ("gpt", "bf16", "seq2seq", "sentence"):
        assert answer[job]["losses"][-1] < answer[job]["losses"][0]
    for job in ("gpt", "peft"):
        assert answer[job]["resumed"] == answer[job]["parameters"]
    assert any("eval_loss" in line for line in answer["peft"]["metrics"])
    assert any("eval_sum" in line for line in answer["seq2seq"]["metrics"])
    assert len(answer["seq2seq"]["predicted"]) == 8
    assert (
        len({line["reward"] for line in answer["grpo"]["metrics"] if "reward" in line})
        > 1
    )
    assert any("rewards/margins" in line for line in answer["dpo"]["metrics"])


def test_the_mixin_on_the_cpu_is_their_own(runs, ranks, tmp_path):
    (own,), _ = runs(ALONE)
    assert ranks(SCRIPT, folder=str(tmp_path), jobs=["gpt"], **CPU) == [
        {"gpt": own["gpt"]}
    ]


def test_two_ranks_without_the_mixin_are_refused(ranks, tmp_path):
    """Transformers would let each rank train by itself, with one warning."""
    for answer in ranks(
        SCRIPT, folder=str(tmp_path), jobs=["in_order"], errors=True, torchrun=True
    ):
        said = answer["in_order"]["error"]
        assert (
            "each rank would train alone, because Accelerate does not support acme"
            in said
        )
        assert "class Arguments(AcceleratorArguments, TrainingArguments)" in said


@forked("acme")
def test_wrong_use_is_refused_in_one_message():
    """With both frameworks imported before ours, which does no harm."""
    import types

    import torch
    from arguments import ours
    from transformers import TrainingArguments

    from accel_train.accelerate import partial_state
    from accel_train.transformers import AcceleratorArguments

    def said(call, *arguments, **options):
        with pytest.raises(accel_core.IntegrationError) as error:
            call(*arguments, **options)
        return str(error.value)

    made = ours("TrainingArguments")
    behind = said(type, "Wrong", (TrainingArguments, AcceleratorArguments), {})
    assert behind.endswith(
        "Next step: write class Arguments(AcceleratorArguments, TrainingArguments)"
    )
    changed = type("TrainingArguments", (), {"__module__": "transformers"})
    changed = said(type, "Wrong", (AcceleratorArguments, changed), {})
    assert "has no method _setup_devices" in changed
    assert changed.endswith("pip install transformers==5.23.0")
    fp16 = said(made, "out", fp16=True)
    assert fp16.startswith("fp16=True: Accelerate scales losses on xpu, cuda")
    assert "not on acme. Next step: use bf16=True" in fp16
    use_cpu = (
        "use_cpu=True, but accel-core has chosen acme. Next step: remove use_cpu, or set "
        "DS_ACCELERATOR=cpu."
    )
    assert said(made, use_cpu=True) == use_cpu
    assert "accel_train.deepspeed.activate()" in said(
        made, deepspeed={"train_batch_size": 1}
    )
    partial_state()
    assert said(partial_state, "cpu").startswith(
        "partial_state() was called for acme first, and now for cpu"
    )
    assert partial_state("acme").device.type == "acme"
    assert made("out", bf16=True).bf16
    assert str(made("out").device) == "acme:0"
    # A device of Transformers' ladder is there beside ours.
    torch.npu = types.SimpleNamespace(is_available=lambda: True)
    other = said(TrainingArguments)
    assert "partial_state() created for acme" in other
    assert "Accelerate would choose the device npu" in other


@forked("acme", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
def test_an_older_accelerate_is_named():
    import accelerate

    from accel_train.accelerate import partial_state

    class Older(accelerate.PartialState):
        def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
            return ("gloo", accelerate.DistributedType.MULTI_CPU)  # as 1.1.0 did

    accelerate.PartialState = Older
    os.environ["MASTER_PORT"] = str(free_port())
    with pytest.raises(accel_core.IntegrationError) as error:
        partial_state()
    words = "cannot start ranks on acme: Your assigned backend accl is not available, please use gloo"
    assert words in str(error.value)
    assert str(error.value).endswith("update Accelerate: pip install -U accelerate")
