"""What is promised of every accelerator, and torch's operators, on the real TorchTPU."""

import json
import os
from pathlib import Path

import pytest
from accel_tests.cards import require_as_recorded
from accel_tests.children import run_python
from tpu_card import HERE, NAME, card, variables

# ---------------------------------------------------------------------------- card
# What the checks of accel_testing.conformance promise of every accelerator, on the real TorchTPU.


def test_card():
    """Nothing fails but what `expected.toml` names, and the docs' page of scores tells what came."""
    require_as_recorded(card(), NAME)


#: What passes of each framework's checks; the others are not claimed.
PASSES = {
    "deepspeed": {"activates"},
    "lightning": {"fit", "fit_resumes"},
    "transformers": {"train", "train_resumes"},
}
#: What fails, by the vendor's words; it is seen here when one mends.
FAILS = {
    # These give DeepSpeed a list of parameters, made on the host, and `module.to()` makes new ones here.
    # With `model.parameters()`, as DeepSpeed's documents have it, ZeRO 0 to 3 train: see below.
    "deepspeed": dict.fromkeys(
        ("zero_1", "zero_in_bfloat16", "zero_in_float16", "zero_2_offloaded", "fused_adam"),
        "incompatible tensor type",
    )
    | {"zero_3": "partition_numel", "zero_1_resumes": "no checkpoint", "zero_3_resumes": "no checkpoint"},
    "lightning": dict.fromkeys(("fit_in_bfloat16", "fit_in_float16"), "argument is in a failed state"),
    "transformers": {"train_in_bfloat16": "argument is in a failed state"},
}


@pytest.mark.parametrize("framework", FAILS)
def test_frameworks(framework):
    environ = variables()
    if framework == "deepspeed":
        environ["PYTHONPATH"] = os.environ.get("ACCEL_REAL_DEEPSPEED", "")
    verify = ["-m", "accel_core", "verify"]
    listed = run_python([*verify, "--list"], environ).succeeded()
    names = [word for word in listed.stdout.split() if word.startswith(f"frameworks.{framework}.")]
    asked = [part for name in names for part in ("--check", name)]
    rows = json.loads(run_python([*verify, "tpu", *asked, "--json"], environ, timeout=300).stdout)["checks"]
    failed = {row["name"].rpartition(".")[2]: row["message"] for row in rows if row["outcome"] == "failed"}
    assert failed.keys() == FAILS[framework].keys(), failed
    assert [name for name, words in FAILS[framework].items() if words not in failed[name]] == [], failed
    assert {r["name"].rpartition(".")[2] for r in rows if r["outcome"] == "passed"} == PASSES[framework]


# ---------------------------------------------------------------------------- operators
# torch's database of operators on the real TorchTPU: what is recorded of one comes again.


ROOT = Path(__file__).parents[4]
RECORD = ROOT / "docs/explanation/tpu-operators.json"


def test_what_is_recorded_comes_again(tmp_path):
    """Random numbers are not compared, and an error that does not come is seen."""
    again = tmp_path / "again.json"
    tool = [str(ROOT / "tools/opinfo.py"), "--device", "tpu", "--jobs", "1"]
    done = run_python([*tool, "--only", "uniform", "--record", str(again)], os.environ, timeout=300)
    assert again.is_file(), done.stderr
    recorded, seen = (json.loads(file.read_text(encoding="utf-8")) for file in (RECORD, again))
    assert seen["cells"]["operators"] == {"uniform": recorded["cells"]["operators"]["uniform"]}, done.stdout
    assert [each[3] for each in seen["failures"]] == ["errors"]


# ---------------------------------------------------------------------------- training
# Trainings on the real TorchTPU, each against the same on the CPU.


EXAMPLE = Path(__file__).parents[4] / "examples" / "train_digits.py"
SUPPORT = Path(__file__).parents[4] / "tests" / "support"
CPU = {"DS_ACCELERATOR": "cpu"}


def program(*arguments, **more):
    """Give the losses of a program in a process of its own."""
    path = os.pathsep.join(filter(None, (os.environ.get("ACCEL_REAL_DEEPSPEED"), str(SUPPORT))))
    environ = {**variables(), "PYTHONPATH": path if arguments[0] == "zero" else str(SUPPORT), **more}
    return run_python(map(str, [HERE / "programs.py", *arguments]), environ, timeout=300).answer


def test_the_main_job_learns():
    """examples/train_digits.py as it is."""
    command = [str(EXAMPLE), "--precision", "fp32", "--epochs", "4", "--json"]
    report = run_python(command, variables(), timeout=300).answer
    assert (report["backend"], report["device"]) == ("tpu", "TorchTPU on libpjrt_cpu.so")
    assert report["test_accuracy"] >= 0.93
    print(f"\n{json.dumps(report)}")


#: The two others run by night: each process imports torch, TorchTPU and DeepSpeed.
STAGES = [
    stage if stage in (1, 3) else pytest.param(stage, marks=pytest.mark.nightly(reason="as 1 and 3"))
    for stage in range(4)
]


@pytest.mark.parametrize("stage", STAGES)
def test_deepspeed(stage):
    ours, cpu = program("zero", stage), program("zero", stage, **CPU)
    assert ours == pytest.approx(cpu, rel=1e-5)
    print(f"\nZeRO {stage}: tpu {ours}, cpu {cpu}")


def test_lightning_keeps_tied_weights():
    """TorchTPU's `module.to()` makes new parameters, unless torch swaps them: one weight would become two."""
    ours, cpu = program("tied"), program("tied", **CPU)
    assert ours == pytest.approx(cpu, rel=1e-5)
    assert ours[-1] < ours[0]


def test_a_checkpoint_goes_from_cpu_to_tpu_and_back(tmp_path):
    wandering = [loss for more in (CPU, {}, CPU) for loss in program("resumed", tmp_path / "wanders", **more)]
    staying = [loss for _ in range(3) for loss in program("resumed", tmp_path / "stays", **CPU)]
    assert wandering == pytest.approx(staying, rel=1e-5)
    assert wandering[-1] < wandering[0] / 2
