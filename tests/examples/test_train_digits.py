"""The example that the README runs: real training, through the public interface only."""

import json
import os
import re
import runpy
import sys
import tempfile

import pytest
from accel_tests.children import clean_environment, untraced
from accel_tests.forks import forked
from accel_tests.tools import TREE, load

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

import accel_core  # noqa: E402 - beside torch

EXAMPLE = TREE / "examples" / "train_digits.py"
example = load("train_digits", "examples")


@pytest.fixture(scope="session")
def imports():
    return "import pytest, torch, sklearn.datasets, rich.progress, rich.console"


@pytest.fixture(scope="session")
def on_cpu():
    """One thread: threads of several trainings at once on few cores wait for each other, at full speed."""
    return untraced(clean_environment(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"))


def report(*arguments):
    """What the example prints, in a process of its own."""
    with tempfile.TemporaryFile() as file:
        if os.fork() == 0:
            os.dup2(file.fileno(), 1)
            sys.argv[1:] = ["--json", *arguments]
            runpy.run_path(str(EXAMPLE), run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        assert os.wait()[1] == 0
        file.seek(0)
        return json.loads(file.read())


@pytest.mark.nightly(
    reason="trains to the end; by day two epochs are repeated to the bit"
)
@forked("cpu")
def test_the_example_learns_the_digits():
    assert report()["test_accuracy"] >= 0.97


@pytest.mark.parametrize(
    "precision",
    [
        "fp32",
        pytest.param(
            "auto",
            marks=pytest.mark.nightly(reason="a second precision; by day float32"),
        ),
    ],
)
@forked("cpu")
def test_a_resumed_run_is_bit_equal_to_one_that_was_never_stopped(tmp_path, precision):
    checkpoint = str(tmp_path / "half.pt")
    common = ("--precision", precision, "--epochs", "2")
    uninterrupted = report(*common)
    half = report(*common, "--stop-after", "1", "--checkpoint", checkpoint)
    resumed = report(*common, "--resume", checkpoint)
    assert half["parameters_sha256"] != uninterrupted["parameters_sha256"]
    assert resumed["parameters_sha256"] == uninterrupted["parameters_sha256"]
    assert resumed["epochs"] == 2
    assert uninterrupted["epochs"] == 2
    assert uninterrupted["backend"] == "cpu"
    assert uninterrupted["test_accuracy"] > 0.5
    assert uninterrupted["images_per_second"] > 0
    # Host memory of a process that holds torch: more than the data, less than the machine.
    assert 10 * 2**20 < uninterrupted["peak_memory_bytes"] < 2**40


def test_the_example_names_no_device():
    code = EXAMPLE.read_text(encoding="utf-8").partition('"""\n\nfrom')[2]
    assert code
    assert not re.findall(
        r"torch\.(cuda|xpu|mps|npu|hpu|mlu)\b|[\"'](cuda|xpu|mps|npu|hpu|mlu)\b", code
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "0"], "--epochs must be 1 or more, 0 was given"),
        (["--resume", "nowhere.pt"], "--resume nowhere.pt: there is no such file"),
        (
            ["--checkpoint", "no/where.pt"],
            "--checkpoint no/where.pt: there is no folder no",
        ),
        (["--precision", "fp64"], "invalid choice: 'fp64'"),
    ],
)
def test_bad_arguments_are_named(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b"", b"no checkpoint", b"PK\x03\x04 torn off", b"\x80\x02J\x01", b"\x80\x02\x8a"],
)
def test_a_corrupt_checkpoint_is_one_message(tmp_path, content):
    checkpoint = tmp_path / "torn.pt"
    checkpoint.write_bytes(content)
    trainer = example.Trainer(accel_core.accelerator("cpu"), torch.float32, 0)
    with pytest.raises(
        SystemExit,
        match=f"--resume {checkpoint}: this is no checkpoint of this program",
    ):
        trainer.load(checkpoint)


def test_another_accelerators_checkpoint_is_resumed(tmp_path):
    """Its generator's state has another size, as npu's has beside the CPU's."""
    cpu = accel_core.accelerator("cpu")
    trainer = example.Trainer(cpu, torch.float32, 0)
    for _ in trainer.run_epoch(256):
        pass
    checkpoint = tmp_path / "half.pt"
    trainer.save(checkpoint)
    assert [file.name for file in tmp_path.iterdir()] == ["half.pt"]
    resumed = example.Trainer(cpu, torch.float32, 1)
    assert resumed.load(checkpoint) == "cpu"
    saved = torch.load(checkpoint, weights_only=True)
    torch.save(
        {
            **saved,
            "accelerator": "npu",
            "device_rng": torch.zeros(16, dtype=torch.uint8),
        },
        checkpoint,
    )
    resumed = example.Trainer(cpu, torch.float32, 1)
    assert resumed.load(checkpoint) == "npu"
    assert resumed.epoch == 1
    assert resumed.digest() == trainer.digest()
