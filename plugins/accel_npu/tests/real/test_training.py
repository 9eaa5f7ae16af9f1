"""The main job, examples/train_digits.py as it is, on the real torch_npu."""

import json
from pathlib import Path

import pytest
from stand_in.children import run

EXAMPLE = Path(__file__).parents[4] / "examples" / "train_digits.py"

TRAIN = f"""
import runpy, sys
sys.argv = [{str(EXAMPLE)!r}, "--precision", "fp32", "--json", *{{0!r}}]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


@pytest.fixture
def train(with_cann):
    def trained(*arguments):
        return with_cann(
            TRAIN.format(list(map(str, arguments))), DS_ACCELERATOR="npu"
        ).answer

    return trained


def test_it_learns(train):
    report = train()
    assert report["backend"] == "npu"
    assert report["device"] == "Ascend910B1"
    assert report["precision"] == "float32"
    assert report["test_accuracy"] >= 0.97
    # 54,410 parameters, their gradients and two moments; the images; and no more than a few activations.
    assert 4 * 4 * 54_410 < report["peak_memory_bytes"] < 64 << 20
    print(f"\n{json.dumps(report)}")


def test_it_is_close_to_the_cpu(stand_in):
    code = "from checks.run import main; main('training')"
    assert run(code, cann=stand_in, DS_ACCELERATOR="npu").answer == {}


@pytest.mark.nightly(reason="three trainings; by day one is compared with the CPU's")
def test_resuming_gives_the_same_bits(train, tmp_path):
    """The checkpoint holds the device's random numbers, and restores them."""
    half = tmp_path / "half.pt"
    whole = train("--epochs", "2")
    train("--epochs", "2", "--stop-after", "1", "--checkpoint", half)
    resumed = train("--epochs", "2", "--resume", half)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
