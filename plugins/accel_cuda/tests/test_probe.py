"""Why torch.cuda may not be usable: told from files and variables, on trees built on disk."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import accel_cuda
from accel_core import Provenance, Status, TorchBuild, evidence
from accel_core.detection import Candidate, Outcome
from accel_core.detection.probe import Case
from accel_core.detection.probe import examine as examine_in_core
from accel_core.settings import Settings

CUDA = TorchBuild("2.13.0+cu130", cuda="13.0")
ROCM = TorchBuild("2.13.0+rocm7.0", hip="7.0.51831")
MODALIAS = "pci:v0000{}d0000{}sv000010DEsd000016C1bc03sc02i00\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine with no torch imported and no variable set, as a tree of files; `torch` installs a build."""

    def write(path: str, text: str = "") -> None:
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def install(build: TorchBuild) -> None:
        write("site/torch/__init__.py", "raise SystemExit('torch was imported')\n")
        kinds = "".join(f"{name} = {getattr(build, name)!r}\n" for name in ("cuda", "hip", "xpu"))
        write("site/torch/version.py", f"__version__ = {build.version!r}\n{kinds}")
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {build.version}\n"
        write(f"site/torch-{build.version}.dist-info/METADATA", metadata)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    write.root = str(tmp_path)
    write.torch = install
    write.setenv = monkeypatch.setenv
    write.nvidia = lambda: write("sys/bus/pci/devices/0000:00:04.0/modalias", MODALIAS.format("10DE", "2335"))
    write.amd = lambda: write("sys/bus/pci/devices/0000:00:05.0/modalias", MODALIAS.format("1002", "74A1"))
    return write


def examined(machine, backend) -> Outcome | None:
    """What rules the declaration out."""
    named = replace(backend, provenance=Provenance("accel-cuda", "0.1.0", "cuda", "accel_cuda"))
    candidate = Candidate(named, accel_cuda)
    case = Case(candidate, Settings(), evidence(named, machine.root), root=machine.root)
    outcome, _ = examine_in_core(case)
    return outcome


def obstacle(machine, build, environ=()) -> Outcome | None:
    """What stands against the device that `build` is for."""
    machine.torch(build)
    for name, value in dict(environ).items():
        machine.setenv(name, value)
    return examined(machine, accel_cuda.ROCM if build.hip else accel_cuda.CUDA)


@pytest.mark.parametrize(
    ("build", "kind"),
    [(TorchBuild("2.13.0+cpu"), "a CPU"), (TorchBuild("2.13.0+xpu", xpu="20250301"), "an XPU")],
)
def test_a_torch_without_cuda(machine, build, kind):
    machine("dev/nvidia0")
    found = obstacle(machine, build)
    assert found.reason == f"torch {build.version} is {kind} build, without CUDA and ROCm"
    assert found.hint.endswith("accel setup cuda")
    # Not a device count of 0: with such a torch, a pin to cuda cannot be honoured.
    assert (found.status, found.devices) == (Status.NO_DEVICE, None)


def test_both_declarations_say_the_same_of_a_torch_without_either(machine):
    machine("dev/nvidia0")
    machine("dev/kfd")
    machine.torch(TorchBuild("2.13.0+cpu"))
    assert examined(machine, accel_cuda.CUDA) == examined(machine, accel_cuda.ROCM)


@pytest.mark.parametrize(
    ("build", "backend", "reason"),
    [
        (CUDA, accel_cuda.ROCM, "torch 2.13.0+cu130 is a CUDA build, without ROCm"),
        (ROCM, accel_cuda.CUDA, "torch 2.13.0+rocm7.0 is a ROCm build, without CUDA"),
    ],
    ids=["CUDA", "ROCm"],
)
def test_a_torch_for_the_other_maker(machine, build, backend, reason):
    machine("dev/nvidia0")
    machine("dev/kfd")
    machine.torch(build)
    found = examined(machine, backend)
    assert (found.status, found.reason, found.devices) == (Status.NO_DEVICE, reason, None)
    assert found.hint.endswith("accel setup cuda")


@pytest.mark.parametrize("node", ["/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu0"])
def test_every_kind_of_node_will_do(machine, node):
    machine(node)
    assert obstacle(machine, CUDA) is None


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


@pytest.mark.parametrize(
    ("mark", "name", "step"),
    [
        (".dockerenv", "this container", "docker run --gpus all"),
        ("run/.containerenv", "this Podman container", "podman run --device nvidia.com/gpu=all"),
        (".singularity.d/env", "this Apptainer container", "apptainer exec --nv"),
        ("var/run/secrets/kubernetes.io/x", "this Kubernetes pod", "{limits: {nvidia.com/gpu: 1}}"),
    ],
)
def test_a_container_without_its_devices(machine, mark, name, step):
    machine.nvidia()
    machine("proc/driver/nvidia/version", "NVRM version: 580.65.06\n")
    machine(mark)
    found = obstacle(machine, CUDA)
    assert f"{name} has no /dev/nvidia" in found.reason
    assert step in found.hint


PROBE = (
    "import json, sys\n"
    "outcome = examine(accel_cuda.CUDA)\n"
    "print(json.dumps([outcome and outcome._asdict(), 'torch' in sys.modules]))\n"
)


def test_the_installed_build_is_read_without_importing_torch(child, examine, tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (package / "version.py").write_text("__version__ = '2.99.0+cpu'\ncuda = None\nhip = None\n")
    code = f"{examine}sys.path.insert(0, {str(tmp_path)!r})\n{PROBE}"
    answer, imported = json.loads(child(code))
    assert answer["reason"] == "torch 2.99.0+cpu is a CPU build, without CUDA and ROCm"
    assert not imported


def test_without_torch_that_is_all_there_is_to_say(child, examine):
    answer, _ = json.loads(child(f"{examine}sys.modules['torch'] = None\n{PROBE}"))
    assert answer["status"] == "not_installed"
    assert answer["reason"].startswith("torch is not installed")
    assert answer["hint"].endswith("accel setup cuda")


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
def test_it_stands_aside_when_torch_cuda_is_impersonated(child, examine, tmp_path, way):
    pytest.importorskip("torch")
    package = tmp_path / "torch_vendor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "transfer.py").write_text(f"import torch\n{IMPERSONATORS[way]}")
    load = f"sys.path.insert(0, {str(tmp_path)!r})\nimport torch_vendor.transfer\n"
    both = PROBE + PROBE.replace("CUDA", "ROCM")
    answer, other = (json.loads(line)[0] for line in child(f"{examine}{load}{both}").splitlines())
    assert answer["status"] == "stands_aside"
    assert answer["reason"] == "torch.cuda is impersonated by torch_vendor.transfer"
    assert "torch_vendor.transfer" in answer["hint"]
    assert answer == other


def test_torch_itself_is_no_impersonator(child, examine):
    pytest.importorskip("torch")
    code = f"{examine}import torch\n{PROBE}"
    answer, _ = json.loads(child(code))
    assert not answer or answer["status"] != "stands_aside"


def test_wrappers_with_cuda_behind_them_are_left_alone(child, examine, tmp_path):
    pytest.importorskip("torch")
    package = tmp_path / "spaces"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\ntorch.cuda.is_available = lambda: True\n")
    code = f"{examine}sys.path.insert(0, {str(tmp_path)!r})\nimport spaces\n{PROBE}"
    answer, _ = json.loads(child(code))
    assert not answer or answer["status"] != "stands_aside"
