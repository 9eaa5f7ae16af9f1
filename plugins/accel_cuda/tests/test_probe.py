"""Why torch.cuda may not be usable: told from files and variables, on trees built on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accel_core import TorchBuild
from accel_cuda import BACKEND, _obstacle

CUDA = TorchBuild("2.13.0+cu130", cuda="13.0")
ROCM = TorchBuild("2.13.0+rocm7.0", hip="7.0.51831")
MODALIAS = "pci:v0000{}d0000{}sv000010DEsd000016C1bc03sc02i00\n"


@pytest.fixture
def machine(tmp_path: Path):
    def write(path: str, text: str = "") -> None:
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write.root = str(tmp_path)
    write.nvidia = lambda: write("sys/bus/pci/devices/0000:00:04.0/modalias", MODALIAS.format("10DE", "2335"))
    write.amd = lambda: write("sys/bus/pci/devices/0000:00:05.0/modalias", MODALIAS.format("1002", "74A1"))
    return write


def obstacle(machine, build, environ=()):
    return _obstacle(BACKEND, build, dict(environ), machine.root)


@pytest.mark.parametrize(
    ("build", "kind"),
    [(TorchBuild("2.13.0+cpu"), "a CPU"), (TorchBuild("2.13.0+xpu", xpu="20250301"), "an XPU")],
)
def test_a_torch_without_cuda(machine, build, kind):
    machine("dev/nvidia0")
    found = obstacle(machine, build)
    assert found.reason == f"torch {build.version} is {kind} build, without CUDA and ROCm"
    assert "https://pytorch.org/" in found.hint
    # Not a device count of 0: with such a torch, a pin to cuda cannot be honoured.
    assert (found.usable, found.stands_aside, found.devices) == (False, False, None)


def test_nothing_stands_against_it(machine):
    machine("dev/nvidia0")
    assert obstacle(machine, CUDA) is None


@pytest.mark.parametrize("node", ["/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu0"])
def test_every_kind_of_node_will_do(machine, node):
    machine(node)
    assert obstacle(machine, CUDA) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "CUDA_VISIBLE_DEVICES='' hides every device"),
        ("-1", "CUDA_VISIBLE_DEVICES='-1' hides every device: '-1' ends the list"),
        ("0,0", "CUDA_VISIBLE_DEVICES='0,0' hides every device: '0' is there twice"),
    ],
)
def test_every_device_is_hidden(machine, value, reason):
    machine("dev/nvidia0")
    found = obstacle(machine, CUDA, {"CUDA_VISIBLE_DEVICES": value})
    assert (found.reason, found.devices) == (reason, 0)
    assert found.hint.startswith("unset CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize("value", ["0", "0,-1", "GPU-8932f937", "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"])
def test_some_device_is_visible(machine, value):
    machine("dev/nvidia0")
    assert obstacle(machine, CUDA, {"CUDA_VISIBLE_DEVICES": value}) is None


def test_the_other_makers_variables_do_not_count(machine):
    machine("dev/nvidia0")
    assert obstacle(machine, CUDA, {"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}) is None


@pytest.mark.parametrize(
    ("environ", "culprit"),
    [
        ({"HIP_VISIBLE_DEVICES": ""}, "HIP_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, "ROCR_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_rocm_has_variables_of_its_own(machine, environ, culprit):
    machine("dev/kfd")
    found = obstacle(machine, ROCM, environ)
    assert (found.reason.partition("=")[0] if found else None) == culprit


def test_no_device(machine):
    machine.amd()
    machine("dev/kfd")
    found = obstacle(machine, CUDA)
    assert found.reason == "torch 2.13.0+cu130 is a CUDA build, and this machine has no NVIDIA GPU"
    assert found.devices == 0


def test_no_device_for_rocm(machine):
    machine.nvidia()
    machine("dev/nvidia0")
    assert obstacle(machine, ROCM).reason.endswith("is a ROCm build, and this machine has no AMD GPU")


def test_no_driver(machine):
    machine.nvidia()
    found = obstacle(machine, CUDA)
    assert found.reason == (
        "an NVIDIA GPU is on the bus (PCI 10de:2335 at 0000:00:04.0), but its driver is not loaded"
    )
    assert "nvidia-smi" in found.hint


def test_no_driver_for_rocm(machine):
    machine.amd()
    found = obstacle(machine, ROCM)
    assert found.reason.startswith("an AMD GPU is on the bus (PCI 1002:74a1 at 0000:00:05.0)")
    assert "rocminfo" in found.hint


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_without_its_devices(machine, mark):
    machine.nvidia()
    machine("proc/driver/nvidia/version", "NVRM version: 580.65.06\n")
    machine(mark)
    found = obstacle(machine, CUDA)
    assert "this container has no /dev/nvidia" in found.reason
    assert "docker run --gpus all" in found.hint


def test_a_driver_that_has_not_made_its_nodes_yet(machine):
    machine.nvidia()
    machine("proc/driver/nvidia/version", "NVRM version: 580.65.06\n")
    assert obstacle(machine, CUDA) is None


def test_outside_linux_only_torch_and_the_variables_tell(machine, monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    assert obstacle(machine, CUDA) is None


PROBE = (
    "import json, sys, accel_cuda\n"
    "answer = accel_cuda.accel_probe(accel_cuda.BACKEND)\n"
    "print(json.dumps([answer and answer._asdict(), 'torch' in sys.modules]))\n"
)


def test_the_installed_build_is_read_without_importing_torch(child, tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (package / "version.py").write_text("__version__ = '2.99.0+cpu'\ncuda = None\nhip = None\n")
    answer, imported = json.loads(child(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROBE}"))
    assert answer["reason"] == "torch 2.99.0+cpu is a CPU build, without CUDA and ROCm"
    assert not imported


def test_without_torch_there_is_nothing_to_say(child):
    code = "import sys; sys.modules['torch'] = None\nimport accel_cuda as a\nprint(a.accel_probe(a.BACKEND))"
    assert child(code) == "None"


# What a vendor's package does to torch.cuda when it is imported, for each way that is in use.
IMPERSONATORS = {
    "replaced": "torch.cuda.device_count = lambda: 8\n",
    "wrapped": (
        "import functools\n"
        "real = torch.cuda.is_available\n"
        "@functools.wraps(real)\n"
        "def is_available(): return True\n"
        "torch.cuda.is_available = is_available\n"
    ),
    "partial": "import functools\ndef f(n): return n\ntorch.cuda.current_device = functools.partial(f, 0)\n",
    "whole": "import sys\ntorch.cuda = sys.modules[__name__]\n",
}


@pytest.mark.parametrize("way", IMPERSONATORS)
def test_it_stands_aside_when_torch_cuda_is_impersonated(child, tmp_path, way):
    pytest.importorskip("torch")
    package = tmp_path / "torch_vendor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "transfer.py").write_text(f"import torch\n{IMPERSONATORS[way]}")
    answer, _ = json.loads(
        child(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport torch_vendor.transfer\n{PROBE}")
    )
    assert answer["stands_aside"]
    assert not answer["usable"]
    assert answer["reason"] == "torch.cuda is impersonated by torch_vendor.transfer"
    assert "torch_vendor.transfer" in answer["hint"]


def test_torch_itself_is_no_impersonator(child):
    pytest.importorskip("torch")
    code = "import torch, accel_cuda; print(repr(accel_cuda._impersonator()))"
    assert child(code) == "''"


def test_wrappers_with_cuda_behind_them_are_left_alone(child, tmp_path):
    pytest.importorskip("torch")
    package = tmp_path / "spaces"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\ntorch.cuda.is_available = lambda: True\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import spaces, accel_cuda; print(repr(accel_cuda._impersonator()))"
    )
    assert child(code) == "''"
