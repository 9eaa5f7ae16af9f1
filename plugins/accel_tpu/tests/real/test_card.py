"""What the checks of accel_testing.conformance promise of every accelerator, on the real TorchTPU."""

import json
import os

import pytest
from accel_tests.cards import require_as_recorded
from accel_tests.children import run_python
from tpu_card import NAME, card, variables


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
    # With `model.parameters()`, as DeepSpeed's documents have it, ZeRO 0 to 3 train: test_training.py.
    "deepspeed": dict.fromkeys(
        (
            "zero_1",
            "zero_in_bfloat16",
            "zero_in_float16",
            "zero_2_offloaded",
            "fused_adam",
        ),
        "incompatible tensor type",
    )
    | {
        "zero_3": "partition_numel",
        "zero_1_resumes": "no checkpoint",
        "zero_3_resumes": "no checkpoint",
    },
    "lightning": dict.fromkeys(
        ("fit_in_bfloat16", "fit_in_float16"), "argument is in a failed state"
    ),
    "transformers": {"train_in_bfloat16": "argument is in a failed state"},
}


@pytest.mark.parametrize("framework", FAILS)
def test_a_frameworks_checks_fail_where_and_as_is_recorded(framework):
    environ = variables()
    if framework == "deepspeed":
        environ["PYTHONPATH"] = os.environ.get("ACCEL_REAL_DEEPSPEED", "")
    verify = ["-m", "accel_core", "verify"]
    listed = run_python([*verify, "--list"], environ).succeeded()
    names = [
        word
        for word in listed.stdout.split()
        if word.startswith(f"frameworks.{framework}.")
    ]
    asked = [part for name in names for part in ("--check", name)]
    rows = json.loads(
        run_python([*verify, "tpu", *asked, "--json"], environ, timeout=300).stdout
    )["checks"]
    failed = {
        row["name"].rpartition(".")[2]: row["message"]
        for row in rows
        if row["outcome"] == "failed"
    }
    assert failed.keys() == FAILS[framework].keys(), failed
    for name, words in FAILS[framework].items():
        assert words in failed[name], name
    assert {
        r["name"].rpartition(".")[2] for r in rows if r["outcome"] == "passed"
    } == PASSES[framework]
