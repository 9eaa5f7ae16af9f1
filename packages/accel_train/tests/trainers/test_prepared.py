"""Programs without a line of ours, and Transformers' own tests, as `accel` starts them."""

import pytest

for package in ("sentence_transformers", "torch", "transformers"):
    pytest.importorskip(package)


# ---------------------------------------------------------------------------- prepared
# Programs without a line of ours, as `accel run` starts them; and what those hear that stay on the CPU.


ACCELERATE = """
import sys, torch, accelerate
model = accelerate.Accelerator(cpu="cpu" in sys.argv).prepare(torch.nn.Linear(4, 4))
print(type(model).__name__, next(model.parameters()).device)
"""
TRAINER = """
import sys, torch, transformers
arguments = transformers.TrainingArguments("out", use_cpu="cpu" in sys.argv)
weight = torch.ones(1, device=arguments.device, requires_grad=True)
print(arguments.parallel_mode.name, weight.device)
"""
ENCODER = """
import torch, sentence_transformers as library
print("Encoder", library.SentenceTransformer(modules=[type("Layer", (torch.nn.Linear,), {})(2, 2)]).device)
"""
LIGHTNING = """
import sys, torch, lightning
from lightning.pytorch.demos.boring_classes import BoringModel

class Model(BoringModel):
    on_train_end = lambda self: print(f"{self.device}/{self.trainer.world_size}", end=" ")

off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
cpu = {"accelerator": "cpu"} if "cpu" in sys.argv else {}
auto = dict.fromkeys(("accelerator", "strategy", "devices"), "auto")  # as LightningCLI says it
for options in ({}, auto, {**auto, "strategy": "ddp", "precision": "bf16-mixed"}):
    lightning.Trainer(max_steps=2, **dict.fromkeys(off, False), **{**options, **cpu}).fit(Model())
print(lightning.Fabric(**cpu).device)
"""
IDLE_BESIDE_ACCELERATOR = """
import accelerate, torch
accelerate.Accelerator()
model = torch.nn.Linear(64, 64)
model(torch.ones(2, 64)).sum().backward()
print("Linear", next(model.parameters()).device)
"""
IDLE_BUT_FOR_SCALARS = """
import accel_core, torch
def train():
    torch.nn.Linear(64, 64)(torch.ones(2, 64)).sum().backward()
train()
for _ in range(100):
    torch.zeros(1, device=accel_core.get_accelerator().device())
"""
TRAINED_IN_A_FUNCTION = """
import accel_core, torch
def train(device):
    torch.nn.Linear(64, 64).to(device)(torch.ones(2, 64, device=device)).sum().backward()
train(accel_core.get_accelerator().device())
"""
ONE_SMALL_PARAMETER = """
import accel_core, torch
weight = torch.ones(1, device=accel_core.get_accelerator().device(), requires_grad=True)
"""


PROGRAMS = [
    (ACCELERATE, [], 1, "Linear acme:0", ""),
    (ACCELERATE, [], 2, "DistributedDataParallel acme:{rank}", ""),
    (
        ACCELERATE,
        ["cpu"],
        1,
        "Linear cpu",
        "Add: accel_train.accelerate.partial_state()",
    ),
    (
        ACCELERATE,
        ["unprepared"],
        1,
        "Linear cpu",
        "Add: accel_train.accelerate.partial_state()",
    ),
    (TRAINER, [], 1, "NOT_PARALLEL acme:0", ""),
    (TRAINER, [], 2, "DISTRIBUTED acme:{rank}", ""),
    (LIGHTNING, [], 1, "acme:0/1 acme:0/1 acme:0/1 acme:0", ""),
    (LIGHTNING, [], 2, "acme:{rank}/2 acme:{rank}/2 acme:{rank}/2 acme:{rank}", ""),
    (
        LIGHTNING,
        ["cpu"],
        1,
        "cpu/1 cpu/1 cpu/1 cpu",
        "Add: Trainer(**accel_train.lightning.",
    ),
    (ENCODER, [], 1, "Encoder cpu", "Add: SentenceTransformer(..., device=accel_core."),
    (
        IDLE_BESIDE_ACCELERATOR,
        [],
        1,
        "Linear cpu",
        ", but the program never used it",
    ),
    (IDLE_BUT_FOR_SCALARS, [], 1, "", ", but the program never used it"),
    (TRAINED_IN_A_FUNCTION, [], 1, "", ""),
    (ONE_SMALL_PARAMETER, [], 1, "", ""),
    ("import torch.distributed.launcher.api; print('Launcher')", [], 1, "Launcher", ""),
    (
        "import torch; print('Linear cpu')",
        [],
        2,
        "Linear cpu",
        ", but the program never used it",
    ),
    (
        "import sys, torch; sys.modules['ignite.engine'] = 1",
        [],
        1,
        "",
        "Ignite took the CPU. Add: create_",
    ),
]


@pytest.mark.parametrize(("program", "arguments", "ranks", "said", "heard"), PROGRAMS)
def test_it_trains_on_acme_or_says_which_line_is_missing(
    run_on_acme, program, arguments, ranks, said, heard
):
    word = "none" if "unprepared" in arguments else "auto"
    variables = {"ACCEL_INTEGRATIONS": word, "ACCEL_SIMULATE": f"acme:{ranks}"}
    run = run_on_acme(program, *arguments, processes=ranks, environ=variables)
    for rank, ended in enumerate(run.ended):
        assert said.format(rank=rank) in ended.stdout
        lines = [
            line
            for line in ended.stderr.splitlines()
            if line.startswith("accel: acme (accel-acme")
        ]
        assert len(lines) == bool(heard and rank == 0), ended.stderr
        assert all(heard in line for line in lines)


# ---------------------------------------------------------------------------- device spec
# The file that `accel env --format transformers-spec` writes, read by Transformers itself on `acme`.


#: As `transformers.testing_utils` is used by each of their tests.
SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path

command = [sys.executable, "-m", "accel_core", "env", "--format", "transformers-spec"]
spec = subprocess.run(command, capture_output=True, text=True, check=True).stdout
Path("accel_spec.py").write_text(spec, "utf-8")
os.environ["TRANSFORMERS_TEST_DEVICE_SPEC"] = "accel_spec.py"
sys.path.insert(0, os.getcwd())  # as pytest's folder; they append it too

import torch
from transformers import testing_utils as theirs

device = theirs.torch_device
drawn = []
for _ in range(2):
    theirs.backend_manual_seed(device, 7)
    drawn.append(torch.rand(3, device=device).tolist())
theirs.backend_empty_cache(device)
print(json.dumps({
    "device": device, "drawn": drawn, "count": theirs.backend_device_count(device),
    "sum": torch.ones(4, device=device).sum().item(),
}))
"""


def test_transformers_tests_run_run_on_acme(run_on_acme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The device has a generator of its own here, which their seed must reach.
    answer = run_on_acme(SCRIPT, environ={"ACCEL_SIMULATE_RANDOM": ""}).answer
    assert answer == {
        "device": "acme",
        "drawn": answer["drawn"][:1] * 2,
        "count": 2,
        "sum": 4,
    }
