"""Who is found behind the real torch.cuda, for each way in which packages take it over.

What else rules the declarations out is told in `tests/detection/test_facts.py`.
"""

import json
import re
from pathlib import Path

import pytest

import accel_core
import accel_cuda
from accel_core import TorchBuild, hidden_by, hint_for
from accel_core.hints import hints_of
from accel_cuda import CUDA, LOOK_ALIKES, ROCM
from accel_cuda.checks import CHECKS
from accel_tools.setup import installed

OTHER = "torch_vendor.transfer"
WRAPPED = "@functools.wraps(torch.cuda.is_available)\ndef f(): return True\ntorch.cuda.is_available = f"
#: The package that does it when it is imported, what it runs, and who is found.
WAYS = [
    ("torch", "", ""),
    (OTHER, "torch.cuda.device_count = lambda: 8", OTHER),
    (OTHER, WRAPPED, OTHER),
    (
        OTHER,
        "def own(n): return n\ntorch.cuda.current_device = functools.partial(own, 0)",
        OTHER,
    ),
    (OTHER, "torch.cuda = types.ModuleType(__name__)", OTHER),
    # Hugging Face's ZeroGPU, with CUDA behind it.
    ("spaces", "torch.cuda.is_available = lambda: True", ""),
]
FIND = """
import functools, json, types, torch
from accel_cuda import CUDA, ROCM
from accel_core.checks import namespace_owner
from accel_testing.conformance.forks import run_in_fork

def found(name, source):
    exec(source, {{"torch": torch, "functools": functools, "types": types, "__name__": name}})
    return json.dumps([namespace_owner(CUDA), namespace_owner(ROCM)])

print(json.dumps([json.loads(run_in_fork(lambda: found(*way), 60)[0]) for way in {ways!r}]))
"""


def test_who_impersonates_torch_cuda(child):
    pytest.importorskip("torch")
    told = json.loads(child(FIND.format(ways=[way[:2] for way in WAYS])))
    assert told == [[by] * 2 for *_, by in WAYS]


HIDDEN = [
    ({"HIP_VISIBLE_DEVICES": ""}, "HIP_VISIBLE_DEVICES"),
    ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES"),
    ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, "ROCR_VISIBLE_DEVICES"),
    ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, ""),
]


@pytest.mark.parametrize(("environ", "culprit"), HIDDEN)
def test_rocm_has_variables_of_its_own(environ, culprit):
    assert (hidden_by(ROCM, environ) or "").partition("=")[0] == culprit


# ---------------------------------------------------------------------------- look-alikes
# Makers whose builds of torch answer as torch.cuda, on trees of files.


#: A machine a line: its signs, the installed torch, what torch.version says of it, whose hardware is
#: declared, and why a look-alike's device cannot be used.
MACHINES = [
    json.loads(line)
    for line in Path(__file__).with_name("machines.jsonl").read_text().splitlines()
]
SEEN = [
    text
    for text, _ in json.loads(
        Path(__file__).with_name("seen.json").read_text(encoding="utf-8")
    )
]


@pytest.mark.parametrize(
    "line", MACHINES, ids=lambda line: f"{line['torch']} {' '.join(line['signs'])}"
)
def test_whose_hardware_is_declared_and_needs_its_makers_torch(
    computer, monkeypatch, line
):
    for sign in line["signs"]:
        computer.sign(sign)
    monkeypatch.setattr(accel_cuda, "torch_build", lambda: TorchBuild(**line["build"]))
    monkeypatch.setattr(
        accel_cuda,
        "evidence",
        lambda backend: accel_core.evidence(backend, computer.path),
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: line["torch"])
    found = accel_cuda.accel_backends()
    assert [backend.hardware.name for backend in found] == line["declared"]
    refused = [
        (a.reason, a.hint == b.install_hint)
        for b in found
        if (a := accel_cuda.accel_probe(b))
    ]
    assert refused == ([(line["refused"], True)] if line["refused"] else [])


@pytest.mark.parametrize(("mark", "alike"), LOOK_ALIKES.items())
def test_a_look_alike_is_given_no_advice_of_nvidias_or_amds(mark, alike):
    assert (mark, alike.url) == installed.OWN_BUILDS[alike.hardware.name]
    steps = [step for _, step in alike.hints]
    words = (
        *steps,
        alike.description,
        alike.url,
        alike.install_hint,
        alike.hardware,
        alike.granted,
    )
    assert not re.search("nvidia|amd|accel setup|rocm", repr(words), re.IGNORECASE)
    assert [accel_cuda.accel_checks(backend) for backend in (CUDA, ROCM, alike)] == [
        CHECKS,
        [],
        [],
    ]
    told = {text: hint_for(RuntimeError(text), hints_of(alike)) or "" for text in SEEN}
    tool = alike.hardware.driver_step.split("`")[1]
    rows = (
        ("driver|[.]so", alike.url),
        ("No .* GPUs are|out of memory", tool),
        ("fork", "spawn"),
    )
    assert all(
        step in told[text]
        for kind, step in rows
        for text in SEEN
        if re.search(kind, text)
    )
