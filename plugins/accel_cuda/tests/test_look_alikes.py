"""Makers whose builds of torch answer as torch.cuda, on trees of files."""

import json
import re
from pathlib import Path

import pytest

import accel_core
import accel_cuda
from accel_core import TorchBuild, hint_for
from accel_core.hints import hints_of
from accel_cuda import CUDA, LOOK_ALIKES, ROCM
from accel_cuda.checks import CHECKS
from accel_tools.setup import installed

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
    answers = [(backend, accel_cuda.accel_probe(backend)) for backend in found]
    refused = [(backend, answer) for backend, answer in answers if answer]
    if line["refused"]:
        [(backend, answer)] = refused
        assert answer.reason == line["refused"]
        assert answer.hint == backend.install_hint
    else:
        assert refused == []


@pytest.mark.parametrize(("mark", "alike"), LOOK_ALIKES.items())
def test_setup_knows_a_look_alikes_mark_and_page(mark, alike):
    build = installed.VENDOR_BUILDS[alike.hardware.name]
    assert (build.mark, build.url) == (mark, alike.url)


@pytest.fixture(params=LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def alike(request):
    """The declaration of one maker."""
    return request.param


def test_a_look_alikes_declaration_names_nobody_else(alike):
    steps = [step for _, step in alike.hints]
    words = (
        *steps,
        alike.description,
        alike.url,
        alike.install_hint,
        alike.hardware,
        alike.request,
    )
    others = "nvidia|amd|accel setup|rocm"
    assert not re.search(others, repr(words), re.IGNORECASE)


def test_a_look_alike_has_no_checks_of_nvidias(alike):
    assert accel_cuda.accel_checks(CUDA) == CHECKS
    assert accel_cuda.accel_checks(ROCM) == []
    assert accel_cuda.accel_checks(alike) == []


def next_steps(alike, errors):
    """The next step of a look-alike after each known error that matches."""
    matching = [text for text in SEEN if re.search(errors, text)]
    assert matching
    return [hint_for(RuntimeError(text), hints_of(alike)) or "" for text in matching]


def test_after_an_error_of_its_driver_a_look_alikes_page_is_named(alike):
    for step in next_steps(alike, "driver|[.]so"):
        assert alike.url in step


def test_after_an_error_of_its_devices_a_look_alikes_tool_is_named(alike):
    tool = alike.hardware.driver_step.split("`")[1]
    for step in next_steps(alike, "No .* GPUs are|out of memory"):
        assert tool in step


def test_after_an_error_of_a_fork_spawning_is_named(alike):
    for step in next_steps(alike, "fork"):
        assert "spawn" in step
