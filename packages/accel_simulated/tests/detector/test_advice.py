"""The replacements that a report names."""

import json
import re
from pathlib import Path

import pytest

from accel_core import Accelerator
from accel_simulated.detector import advice

ROOT = Path(__file__).parents[4]


PROFILE = (
    "`profile()` without `activities`: torch then records every available activity"
)
NONE = 'no counterpart: run this code only under a condition such as `if acc.name == "cuda":`'


def test_replacements_name_only_existing_members():
    known = json.loads((ROOT / "tools" / "torch_accelerator.json").read_text())["since"]
    said = [*advice._BY_NAME.values(), *advice._BY_KIND.values()]
    said += [
        advice.replacement("call", f"torch.cuda.{name}()", "cuda")
        for name in advice._IN_TORCH_ACCELERATOR
    ]
    assert len(said) > 40
    for text in said:
        ours, torchs = (
            re.findall(r"\bacc\.(\w+)", text),
            re.findall(r"\btorch\.accelerator\.(\w+)", text),
        )
        assert all(hasattr(Accelerator, name) for name in ours), text
        assert all(name in known for name in torchs), text


@pytest.mark.parametrize(
    ("kind", "what", "said"),
    [
        ("call", "torch.cuda.synchronize()", "`acc.synchronize()`; or `torch.accelerator.synchronize()`"),
        ("call", "torch.cuda.memory_summary()", "`acc.memory_summary()`"),
        ("call", "torch.cuda.nccl.version()", "`acc.communication_backend_version()`"),
        ("call", "torch.cuda._lazy_call()", "`acc.lazy_call(f)`"),
        ("call", "torch.cuda._lazy_init()", NONE),
        ("type", "torch.cuda.FloatTensor", "`acc.FloatTensor`"),
        ("type", "torch.cuda.BoolTensor", "`torch.tensor(data, dtype=..., device=acc.device())`"),
        ("ask", ".is_cuda", "`acc.on_accelerator(tensor)`"),
        ("ask", "torch.cuda.device_count()", "`acc.device_count()`; or `torch.accelerator.device_count()`"),
        ("ask", '"cuda"', "`acc.on_accelerator(tensor)`, `acc.is_accelerator()`; or `acc.name`"),
        ("ask", '"nccl"', "`acc.communication_backend_name()`"),
        ("type", '"torch.cuda.FloatTensor"', "`acc.FloatTensor`"),
        ("setting", "torch.backends.cudnn.version()", NONE),
        ("call", "torch.cuda.OutOfMemoryError", "`torch.OutOfMemoryError`"),
        ("device", '"CUDA"', advice._BY_KIND["device"]),
        ("device", '"cuda:1"', advice._BY_KIND["device"]),
        ("device", "ProfilerActivity.CUDA", PROFILE),
        ("precision", "torch.cuda.amp.GradScaler()", "`acc.grad_scaler()`"),
        ("precision", 'custom_fwd("cuda")', "`torch.amp.custom_fwd(device_type=acc.device_name())`"),
    ],
)  # fmt: skip
def test_the_replacement_of_a_place(kind, what, said):
    assert advice.replacement(kind, what, "cuda") == said


def test_each_replacement_on_the_page_is_one_of_the_report():
    page = (ROOT / "docs/howto/from-torch-cuda.md").read_text("utf-8")
    calls = re.findall(
        r"`(?:with )?(torch\.cuda\.[\w.]+\()[^|]*\| [^|]*`.*?\bacc\.", page
    )
    assert len(calls) > 15
    for call in calls:
        assert advice.replacement("call", f"{call})", "cuda") != NONE, call
