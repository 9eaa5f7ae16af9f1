"""A plugin that was written for API level 1 goes on working: accel-cuda as it was then, unchanged."""

from __future__ import annotations

import importlib
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from accel_testing import layouts
from accel_testing.asking import judge, only, vendor

from accel_core import TorchBuild
from accel_core.detection.records import Candidate, Status
from accel_core.machine import devices, host

DATA = Path(__file__).parent / "data" / "level_1"
CUDA, ROCM = {"cuda": "13.0"}, {"hip": "7.0.51831"}
H200 = "PCI 10de:2335 at 0000:00:04.0"
NOTHING = (
    "this machine has none of /dev/nvidia[0-9]*, /dev/dxg, /dev/nvhost-ctrl-gpu, /dev/nvgpu/igpu[0-9]*, "
    "/dev/kfd, PCI 10de/03, PCI 1002/03, PCI 1002/12"
)


@pytest.fixture
def machine(torch_world, monkeypatch):
    """`machine(nodes, **builds)`: the old plugin is installed beside such a torch, on such hardware."""
    layouts.dist_info(torch_world.site, "accel-cuda", "0.1.0", {layouts.GROUP: {"cuda": "accel_cuda"}})
    shutil.copytree(DATA, torch_world.site, dirs_exist_ok=True)
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)

    def make(*nodes: str, source: str = "raise ImportError('torch was imported')", **builds: str) -> None:
        if builds:
            version = "__version__ = '2.13.0+built'\n" + "".join(
                f"{name} = {builds.get(name)!r}\n" for name in ("cuda", "hip", "xpu")
            )
            layouts._write(torch_world.site, {"torch/__init__.py": source, "torch/version.py": version})
            layouts.dist_info(torch_world.site, "torch", "2.13.0")
        else:
            layouts.dist_info(torch_world.site, "torch", "2.99.0")
        importlib.invalidate_caches()
        monkeypatch.setattr(host, "on_linux", lambda: True)
        monkeypatch.setattr(devices, "pci_devices", lambda root="/": ())
        monkeypatch.setattr(
            devices, "device_nodes",
            lambda patterns, root="/": tuple(n for n in nodes if any(fnmatch(n, p) for p in patterns)),
        )  # fmt: skip

    return make


def test_it_is_of_level_1(machine):
    machine()
    candidate = only("cuda")
    assert isinstance(candidate, Candidate)
    assert (candidate.backend.api_level, candidate.priority) == (1, 200)


@pytest.mark.parametrize(
    ("nodes", "builds", "environ", "reason"),
    [
        ([], CUDA, {}, NOTHING),
        (["/dev/nvidia0"], {}, {}, "torch 2.99.0+simulated is a CPU build, without CUDA and ROCm"),
        (["/dev/nvidia0"], {"xpu": "1"}, {}, "torch 2.13.0+built is an XPU build, without CUDA and ROCm"),
        (["/dev/kfd"], CUDA, {}, "torch 2.13.0+built is a CUDA build, and this machine has no NVIDIA GPU"),
        (["/dev/nvidia0"], ROCM, {}, "torch 2.13.0+built is a ROCm build, and this machine has no AMD GPU"),
        (["/dev/nvidia0"], CUDA, {"CUDA_VISIBLE_DEVICES": "-1"},
         "CUDA_VISIBLE_DEVICES='-1' hides every device: '-1' ends the list"),
        (["/dev/kfd"], ROCM, {"HIP_VISIBLE_DEVICES": ""}, "HIP_VISIBLE_DEVICES='' hides every device"),
        (["/dev/kfd"], ROCM, {"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"},
         "ROCR_VISIBLE_DEVICES='' hides every device"),
    ],
)  # fmt: skip
def test_what_it_tells_apart(machine, monkeypatch, nodes, builds, environ, reason):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    machine(*nodes, **builds)
    found = judge("cuda")
    assert (found.status, found.reason) == (Status.NO_DEVICE, reason)


def test_of_its_variables_the_one_that_counts_is_its_own_affair(machine, monkeypatch):
    """The core knows one of them, by which every device is hidden; HIP reads another one first."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine("/dev/kfd", source="raise ImportError('libamdhip64.so.7: cannot open')", **ROCM)
    found = judge("cuda")
    assert found.status is Status.BROKEN  # it came as far as the import
    assert found.hint == "install the ROCm version that this torch was built for"


def test_it_sees_who_took_its_namespace(machine, monkeypatch):
    machine("/dev/nvidia0")
    torch = importlib.import_module("torch")
    monkeypatch.setattr(torch, "cuda", importlib.import_module("json"), raising=False)
    found = judge("cuda")
    assert (found.status, found.reason) == (Status.STANDS_ASIDE, "torch.cuda is impersonated by json")


@pytest.mark.parametrize(
    ("files", "reason", "hint"),
    [
        ([], f"an NVIDIA GPU is on the bus ({H200}), but its driver is not loaded",
         "nvidia-smi"),
        (["proc/driver/nvidia/version", ".dockerenv"],
         f"the host has an NVIDIA GPU ({H200}), but this container has no /dev/nvidia[0-9]*",
         "docker run --gpus all"),
    ],
)  # fmt: skip
def test_its_look_at_the_driver_works_with_todays_core(machine, tmp_path, files, reason, hint):
    plugin = only("cuda").plugin  # type: ignore[union-attr]
    alias = "pci:v000010DEd00002335sv000010DEsd000016C1bc03sc02i00\n"
    layouts._write(
        tmp_path / "root", {"sys/bus/pci/devices/0000:00:04.0/modalias": alias, **dict.fromkeys(files, "")}
    )
    found = plugin._obstacle(plugin.BACKEND, TorchBuild("2.13.0", cuda="13.0"), {}, str(tmp_path / "root"))
    assert found.reason == reason
    assert hint in found.hint


def test_it_explains_its_own_errors_and_nobody_elses(torch_world, machine):
    machine("/dev/nvidia0", source="raise ImportError('libcudart.so.13: cannot open')", **CUDA)
    assert judge("cuda").hint.startswith("reinstall torch with its nvidia-* packages")
    vendor(torch_world, "raise ImportError('libcudart.so.13: cannot open')")
    assert judge("npu").hint == ""


def test_its_class_works_on_todays_core(torch_world, machine):
    machine()
    paths = [str(torch_world.site), str(torch_world.real_torch)]
    code = (
        f"import json, sys; sys.path[:0] = {paths!r}\n"
        "import torch\n"
        "from accel_cuda import BACKEND\n"
        "from accel_cuda.accelerator import CUDAAccelerator\n"
        "acc = CUDAAccelerator(BACKEND)\n"
        "print(json.dumps([acc.api_level, type(acc.is_triton_supported()).__name__]))"
    )
    assert torch_world.child(code, torch="real").answer == [1, "bool"]
