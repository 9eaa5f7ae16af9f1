"""`python -m benchmarks.vendor_code [--out FOLDER]`: what the detector finds in software of others.

Each program runs on a simulated device with `accel simulate --report` (needs g++) where its packages are
installed: Accelerate, Transformers and Lightning in the environment of session trainers, DeepSpeed in
deepspeed's. Prints a line a program, and leaves the reports in the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

_SCRIPT = "import runpy; runpy.run_module('accelerate.test_utils.scripts.{}', run_name='__main__')\n"
_STATE = "from accel_train.accelerate import partial_state; partial_state()\n"
_TRAINER = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, index):
        ids = torch.randint(0, 64, (16,))
        return {"input_ids": ids, "labels": ids}
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32))
options = dict(num_train_epochs=1, per_device_train_batch_size=4)
options.update(save_steps=4, eval_strategy="steps", eval_steps=4)
arguments = TrainingArguments(sys.argv[1], report_to=[], dataloader_num_workers=1, **options)
Trainer(model, arguments, train_dataset=Data(), eval_dataset=Data()).train()
model.generate(torch.zeros(1, 4, dtype=torch.long, device=model.device), max_new_tokens=4, do_sample=False)
"""
_LIGHTNING = """
import sys, lightning
from accel_train.lightning import trainer_options
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel
lightning.seed_everything(1)
limits = dict(max_epochs=1, limit_train_batches=4, limit_val_batches=2)
limits.update(logger=False, default_root_dir=sys.argv[1])
trainer = lightning.Trainer(**trainer_options(devices=1), **limits)
trainer.fit(BoringModel(), datamodule=BoringDataModule())
trainer.test(BoringModel(), datamodule=BoringDataModule())
"""
_DEEPSPEED = """
import os, sys, torch
if "own" not in sys.argv:
    from accel_train.deepspeed import activate
    activate()
import deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
zero = {"stage": 2, "reduce_bucket_size": 10000, "allgather_bucket_size": 10000}
adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}}
config.update(optimizer=adam, zero_optimization=zero)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(4):
    x = torch.randn(4, 8, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(x).float().square().mean())
    engine.step()
engine.save_checkpoint(sys.argv[1])
"""
_DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 8))
    for options in ({}, {"num_workers": 2}, {"num_workers": 2, "multiprocessing_context": "spawn"}):
        for (x,) in DataLoader(data, batch_size=8, shuffle=True, pin_memory=True, **options):
            assert len(x.to("acme", non_blocking=True)) == 8
"""
#: A name, the package that it needs, the device, the program and its arguments.
_PROGRAMS = (
    (
        "accelerate-test_script",
        "accelerate",
        "xpu:2",
        _SCRIPT.format("test_script"),
        (),
    ),
    (
        "accelerate-test_sync",
        "accelerate",
        "acme:2",
        _STATE + _SCRIPT.format("test_sync"),
        (),
    ),
    ("transformers-trainer", "transformers", "acme:2", _STATE + _TRAINER, ("out",)),
    ("lightning-boring", "lightning", "acme:2", _LIGHTNING, ("out",)),
    ("deepspeed-by-itself", "deepspeed", "acme:2", _DEEPSPEED, ("out", "own")),
    ("deepspeed-activated", "deepspeed", "acme:2", _DEEPSPEED, ("out",)),
    ("torch-data", "torch", "acme:2", _DATA, ()),
)


def main(folder: Path) -> None:
    """Run each program whose package is installed, and print what was found in packages."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    for name, package, device, source, arguments in _PROGRAMS:
        if find_spec(package) is None:
            continue
        (folder / f"{name}.py").write_text(source)
        reports = [
            word
            for ending in ("md", "json")
            for word in ("--report", f"{name}.{ending}")
        ]
        simulate = [
            sys.executable,
            "-m",
            "accel_core",
            "simulate",
            *reports,
            device,
            "--",
        ]
        words = [*simulate, sys.executable, f"{name}.py", *arguments]
        done = subprocess.run(
            words, cwd=folder, env=environ, capture_output=True, text=True, check=False
        )
        told = json.loads((folder / f"{name}.json").read_text())
        found, asks = (
            [p for p in told[key] if p["package"]] for key in ("assumptions", "asks")
        )
        print(
            f"{name:24} {package} {metadata.version(package):12} {device:7} exit {done.returncode}: "
            f"{len(found)} places, {sum(p['times'] for p in found)} times; "
            f"{len(asks)} questions, {sum(p['times'] for p in asks)} times"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--out"]:
        main(Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
