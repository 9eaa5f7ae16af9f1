"""Unchanged programs that `accel run` starts, and the warnings of those that stay on the CPU."""

import pytest

for package in ("sentence_transformers", "torch", "transformers"):
    pytest.importorskip(package)


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
        "Next step: add accel_train.accelerate.partial_state()",
    ),
    (
        ACCELERATE,
        ["unprepared"],
        1,
        "Linear cpu",
        "Next step: add accel_train.accelerate.partial_state()",
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
        "Next step: add Trainer(**accel_train.lightning.",
    ),
    (
        ENCODER,
        [],
        1,
        "Encoder cpu",
        "Next step: add SentenceTransformer(..., device=accel_core.",
    ),
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
        "because Ignite used the CPU. Next step: add create_",
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
