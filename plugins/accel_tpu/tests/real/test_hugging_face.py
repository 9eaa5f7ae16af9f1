"""Hugging Face's trainers on the real TorchTPU: the rows that `acme` has, and the operators it lacks."""

import json
import os
from pathlib import Path

import pytest
from accel_tests.children import run_python
from tpu_card import variables

SUPPORT = Path(__file__).parents[4] / "tests" / "support"
TESTS = Path(__file__).parents[4] / "packages" / "accel_train" / "tests" / "trainers"
ON_CPU = {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
ROWS = ["peft", "sft", "dpo", "seq2seq", "sentence", "bf16", "inference"]
PLACES = ("device", "data", "weights", "places")
#: Adam's first steps are of one size, whatever the gradient: in bfloat16 its parameters are not compared.
ROUNDED = ("grad_norm", "parameters")


def answers(script, environ, out, **how):
    """Give what a script of the trainers' tests answers, in a process of its own."""
    out.mkdir()
    told = json.dumps({"out": str(out), **how})
    start([str(TESTS / script), told], environ).succeeded()
    return json.loads((out / "0.json").read_text())


def start(command, environ):
    path = os.pathsep.join((str(TESTS), str(SUPPORT)))
    return run_python(
        command, {**environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, timeout=600
    )


def leaves(answer, name=""):
    """Give everything in an answer with its name, in order."""
    if isinstance(answer, dict):
        return [leaf for key in answer for leaf in leaves(answer[key], key)]
    if isinstance(answer, list):
        return [leaf for each in answer for leaf in leaves(each, name)]
    return [(name, answer)]


def compared(row, cpu, tpu):
    """Hold a row on the TPU against the CPU's; give the largest difference of a loss."""
    ours, theirs = leaves(tpu), leaves(cpu)
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    relative, absolute = (2e-3, 0.0) if row == "bf16" else (1e-4, 1e-4)
    largest = 0.0
    for (name, our), (_, their) in zip(ours, theirs, strict=True):
        if name in PLACES:
            assert our == "tpu:0", name
            assert their == "cpu", name
        elif isinstance(their, str):
            assert our == their, name
        elif row != "bf16" or name not in ROUNDED:
            assert our == pytest.approx(their, rel=relative, abs=absolute), name
            if name.endswith("loss"):
                largest = max(largest, abs(our - their))
    return largest


@pytest.mark.nightly(reason="a minute or two")
def test_each_row_equals_the_cpus(tmp_path, subtests):
    """With masks, eager attention, and a generating model without positions: XLA's CPU lacks the rest."""
    how = {"plain": True, "values": True, "errors": True, "jobs": [*ROWS, "grpo"]}
    own = answers(
        "hugging_face.py",
        {**variables(), **ON_CPU},
        tmp_path / "cpu",
        own=True,
        folder=f"{tmp_path}/c",
        **how,
    )
    tpu = answers(
        "hugging_face.py", variables(), tmp_path / "tpu", folder=f"{tmp_path}/t", **how
    )
    for row in ROWS:
        with subtests.test(row=row):
            print(f"\n{row}: {compared(row, own[row], tpu[row]):.1e}")
    with subtests.test(row="grpo"):  # it has generated, and counts its rewards
        assert "reward" in own["grpo"]["metrics"][0]
        assert (
            "operator 'aten::nansum' is not implemented for TPU" in tpu["grpo"]["error"]
        )
        assert (
            tpu["grpo"]["places"][0]
            == "grpo_trainer.py:_generate_and_score_completions"
        )
    assert own["bf16"]["losses"][-1] < own["bf16"]["losses"][0]


def test_accelerate_trains_what_was_given_to_the_optimizer_before(tmp_path):
    """TorchTPU's `module.to()` makes new parameters, unless torch swaps them: nothing would be trained."""
    own = answers(
        "digits_accelerate.py", {**variables(), **ON_CPU}, tmp_path / "cpu", own=True
    )
    tpu = answers("digits_accelerate.py", variables(), tmp_path / "tpu")
    assert tpu["device"] == "tpu:0"
    assert own["device"] == "cpu"
    assert tpu["losses"] == pytest.approx(own["losses"], rel=1e-4)
    assert tpu["losses"][-1] < tpu["losses"][0] / 2


def test_a_second_rank_is_refused():
    """On another library than libtpu each process has one device; Accelerate wants the rank's own."""
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    done = start(
        ["-c", "import accel_train.accelerate as a; a.partial_state()"],
        {**variables(), **rank},
    )
    assert done.returncode == 1
    assert (
        "rank 1 of this host needs the tpu device with index 1, because" in done.stderr
    )
