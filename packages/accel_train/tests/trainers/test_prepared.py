"""Programs without a line of ours, as `accel run` starts them; and what those hear that stay on the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sentence_transformers")

pytestmark = pytest.mark.slow

ACCELERATE = """
import sys, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu="cpu" in sys.argv)
model = accelerator.prepare(torch.nn.Linear(4, 4))
print(type(model).__name__, next(model.parameters()).device)
"""
TRAINER = """
import sys
from transformers import TrainingArguments
arguments = TrainingArguments("out", use_cpu="cpu" in sys.argv)
print(arguments.parallel_mode.name, arguments.device)
import torch
torch.ones(1, device=arguments.device)
"""
ENCODER = """
import sys, torch
from sentence_transformers import SentenceTransformer
class Layer(torch.nn.Linear):
    pass
print("SentenceTransformer", SentenceTransformer(modules=[Layer(2, 2)]).device)
"""
PLAIN = """
import torch
print("Linear", torch.nn.Linear(2, 2).weight.device)
"""


@pytest.mark.parametrize(
    ("program", "arguments", "ranks", "said", "heard"),
    [
        (ACCELERATE, [], 1, "Linear acme:{rank}", ""),
        (ACCELERATE, [], 2, "DistributedDataParallel acme:{rank}", ""),
        (
            ACCELERATE,
            ["cpu"],
            1,
            "Linear cpu",
            "Accelerate took the CPU. Add: accel_train.accelerate.partial_state()",
        ),
        (TRAINER, [], 1, "NOT_PARALLEL acme:0", ""),
        (TRAINER, [], 2, "DISTRIBUTED acme:{rank}", ""),
        (TRAINER, ["cpu"], 1, "NOT_PARALLEL cpu", "Accelerate took the CPU"),
        (
            ENCODER,
            [],
            1,
            "SentenceTransformer cpu",
            "Add: SentenceTransformer(..., device=accel_core.get_accelerator()",
        ),
        (PLAIN, [], 2, "Linear cpu", "this program ran on the CPU. Move the model"),
    ],
)
def test_it_trains_on_acme_or_says_which_line_is_missing(run_on_acme, program, arguments, ranks, said, heard):
    variables = {"ACCEL_INTEGRATIONS": "auto"}
    run = run_on_acme(program, *arguments, processes=ranks, environ=variables)
    for rank, ended in enumerate(run.ended):
        assert said.format(rank=rank) in ended.stdout
        lines = [
            line for line in ended.stderr.splitlines() if line.startswith("accel: acme (accel-acme 1.0)")
        ]
        assert len(lines) == bool(heard and rank == 0), ended.stderr
        assert all(heard in line for line in lines)
