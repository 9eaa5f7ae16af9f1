"""`python -m benchmarks.first_step`: seconds from `python train.py` to the end of its first step.

Each program trains one step of a small network and ends there; the clock runs from the start of the process.
Both forms of a program are the same but for the lines in `_FORMS`. On `acme`, a simulated device, plain torch
trains there without accel too; a framework cannot, so its peer trains on the CPU of that process, with the
device beside it. What is not installed is left out: `./dev bench-first-step` has all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import COMPILED, Row, in_turns, ratio_row, show

#: Ratios of pairs spread by 5 % and more: two runs of seven pairs named different rows as missed.
_ROUNDS = 15
_BOUND = 1.02

#: The end of a program: the interpreter's own end is not measured, and the parent sees that it came so far.
_END = "\nprint('first step done', flush=True)\nimport os; os._exit(0)\n"

_TORCH = """
import torch
{choose}
torch.manual_seed(0)
model = torch.nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, target = torch.rand(32, 64, device=device), torch.rand(32, 10, device=device)
torch.nn.functional.mse_loss(model(data), target).backward()
optimizer.step()
float(model.weight.sum())
"""
_DEEPSPEED = """
import torch
{choose}
import deepspeed
model = torch.nn.Linear(64, 10)
config = {{"train_batch_size": 32, "optimizer": {{"type": "SGD", "params": {{"lr": 0.1}}}}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
data, target = torch.rand(32, 64, device=engine.device), torch.rand(32, 10, device=engine.device)
engine.backward(torch.nn.functional.mse_loss(engine(data), target))
engine.step()
float(model.weight.sum())
"""
_LIGHTNING = """
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
{choose}
Trainer(**options, fast_dev_run=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False).fit(BoringModel())
"""
_ACCELERATE = """
import torch
from accelerate import Accelerator
{choose}
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
data = torch.rand(32, 64, device=accelerator.device)
accelerator.backward(model(data).square().mean())
optimizer.step()
float(model.weight.sum())
"""
_TRANSFORMERS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
{choose}
sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16)
model = LlamaForCausalLM(LlamaConfig(**sizes))
data = [{{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}}] * 8
args = Arguments(output_dir="out", max_steps=1, report_to=[], save_strategy="no", **options)
Trainer(model=model, args=args, train_dataset=data).train()
"""
#: The import that a row needs, the program, and the lines with accel and without.
_FORMS = {
    "torch": (
        _TORCH,
        "import accel_core\ndevice = accel_core.get_accelerator().current_device_name()",
        "device = 'DEVICE'",
    ),
    "deepspeed": (
        _DEEPSPEED,
        "from accel_train.deepspeed import activate; activate()",
        "",
    ),
    "lightning": (
        _LIGHTNING,
        "from accel_train.lightning import trainer_options\noptions = trainer_options(devices=1)",
        "options = {'accelerator': 'cpu', 'devices': 1}",
    ),
    "accelerate": (
        _ACCELERATE,
        "from accel_train.accelerate import partial_state\npartial_state()\naccelerator = Accelerator()",
        "accelerator = Accelerator(cpu=True)",
    ),
    "transformers": (
        _TRANSFORMERS,
        (
            "from accel_train.transformers import AcceleratorArguments\n"
            "class Arguments(AcceleratorArguments, TrainingArguments): pass\n"
            "options = {}"
        ),
        "Arguments, options = TrainingArguments, {'use_cpu': True}",
    ),
}
_NAMES = {"torch": "plain torch", "deepspeed": "DeepSpeed", "lightning": "Lightning"}
_ONE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29876",
}


def rows(rounds: int = _ROUNDS) -> list[Row]:
    """One row for each framework that is here and each device."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for device in ("cpu", "acme"):
            for name, (program, with_accel, without) in _FORMS.items():
                if find_spec(name) is None:
                    continue
                ours = Path(folder, f"{name}_{device}_accel.py")
                ours.write_text(program.format(choose=with_accel) + _END)
                peer = Path(folder, f"{name}_{device}_alone.py")
                plain = f"{device}:0" if device == "acme" else device
                peer.write_text(
                    program.format(choose=without.replace("DEVICE", plain)) + _END
                )
                pairs = in_turns(
                    partial(_seconds, ours, device),
                    partial(_seconds, peer, device),
                    rounds + 1,
                )
                there = (
                    "the same"
                    if device == "cpu" or name == "torch"
                    else "the same on the CPU"
                )
                label = f"{_NAMES.get(name, name.capitalize())}, on {device}"
                found.append(
                    ratio_row(label, f"{there}, without accel", pairs[1:], _BOUND)
                )
    return found


def _seconds(program: Path, device: str) -> float:
    """Run the program in a process of its own; the seconds until it has ended."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    environ |= {**COMPILED, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    if program.name.startswith("deepspeed"):
        environ |= _ONE_RANK
    if device == "acme":
        environ |= {"ACCEL_SIMULATE": "acme:1"}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, program.name],
        capture_output=True,
        text=True,
        env=environ,
        cwd=program.parent,
    )
    seconds = time.perf_counter() - start
    if "first step done" not in done.stdout:
        sys.exit(
            f"{program.name} did not train:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return seconds


if __name__ == "__main__":
    sys.exit(show("first-step", "Time to the first step", rows()))
