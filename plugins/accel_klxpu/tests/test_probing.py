"""What is said of the backend, and of cuda beside it, on machines with and without hardware and package."""

from __future__ import annotations

import pytest

from accel_core import hint_for
from accel_klxpu import BACKEND

NODE = "/dev/xpu0"
P800 = ("0000:37:00.0", "1d22", "3688", "120000")
DOCTOR = "torch_xmlir --doctor"
#: The simulated torch is a CPU build.
CUDA_BUILD = "torch.version.cuda = '12.9'\n"


@pytest.fixture
def machine(machine):
    machine.vendor = "torch_xmlir"
    return machine


def counting(devices: int) -> str:
    """Source of a torch_xmlir that leaves torch.cuda's functions to torch, which count so many."""
    return (
        "import types, torch\ntorch.cuda = types.ModuleType('torch.cuda')\n"
        f"torch.cuda.device_count = lambda: {devices}\n"
    )


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("klxpu", 225, "cuda")
    assert BACKEND.vendor_imports == ("torch_xmlir",)
    assert BACKEND.impersonates == "cuda"
    assert not BACKEND.private_use1
    assert BACKEND.visible_devices == ("CUDA_VISIBLE_DEVICES",)
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("nccl", "inductor")
    assert BACKEND.export_envs == ("BKCL", "XPU", "XMLIR", "LD_LIBRARY", "PATH")


def test_hardware_without_the_package(machine):
    verdict = machine.probe(NODE)
    assert verdict["status"] == "not_installed"
    assert verdict["reason"] == f"torch_xmlir is not installed, though the hardware is there: {NODE}"
    assert "XPyTorch" in verdict["hint"]


def test_the_package_without_hardware_is_not_imported(machine):
    machine.package("raise SystemExit('imported')\n")
    verdict = machine.probe(before=CUDA_BUILD)
    assert (verdict["status"], verdict["vendor_imported"]) == ("no_device", False)
    assert "no Kunlunxin XPU" in verdict["reason"]


def test_both(machine):
    machine.package(counting(8))
    verdict = machine.probe(NODE, before=CUDA_BUILD)
    assert (verdict["status"], verdict["devices"]) == ("usable", 8)


def test_another_build_of_torch(machine):
    machine.package("raise SystemExit('imported')\n")
    verdict = machine.probe(NODE)
    assert verdict["reason"] == "torch 2.99.0+simulated is a CPU build, without CUDA and ROCm"
    assert (verdict["hint"], verdict["vendor_imported"]) == (BACKEND.install_hint, False)


def test_every_device_is_hidden(machine):
    machine.package(counting(0))
    verdict = machine.probe(NODE, before=CUDA_BUILD, variables={"CUDA_VISIBLE_DEVICES": ""})
    assert verdict["reason"] == "CUDA_VISIBLE_DEVICES='' hides every device"


def test_a_torch_that_is_too_old(machine):
    machine.package(counting(1))
    machine.distribution("torch", "2.5.1")
    verdict = machine.probe(NODE, before=CUDA_BUILD)
    assert verdict["status"] == "incompatible"
    assert "torch>=2.6" in verdict["reason"]
    assert not verdict["vendor_imported"]


@pytest.mark.parametrize(("value", "status"), [("1", "no_device"), ("0", "usable"), ("", "usable")])
@pytest.mark.parametrize("pinned", [False, True])
def test_torch_xmlir_switched_off_is_not_cuda(machine, value, status, pinned):
    machine.package(counting(1))
    variables = {"DISABLE_XPYTORCH": value}
    verdict = machine.probe(NODE, before=CUDA_BUILD, variables=variables, pinned=pinned)
    assert verdict["status"] == status
    if status == "no_device":
        assert verdict["reason"] == "DISABLE_XPYTORCH=1 switches torch_xmlir off"
        assert (verdict["hint"], verdict["vendor_imported"]) == ("unset DISABLE_XPYTORCH", False)


BROKEN = {
    "no driver": ("raise OSError('libxpurt.so.2: cannot open shared object file')", "xpu-smi"),
    "no runtime": ("raise ImportError('libcudart.so.12: cannot open shared object file')", DOCTOR),
    "another torch": ("raise ImportError('_XMLIRC.so: undefined symbol: _ZN2at')", "XPyTorch"),
    "its own check": ("raise AssertionError('Deregister cuda aten ops error')", DOCTOR),
}


@pytest.mark.parametrize("way", BROKEN)
def test_the_package_is_broken(machine, way):
    source, hint = BROKEN[way]
    machine.package(source)
    verdict = machine.probe(NODE, before=CUDA_BUILD)
    assert verdict["status"] == "broken"
    assert verdict["reason"].startswith("torch_xmlir failed: ")
    assert hint in verdict["hint"]


def test_it_is_ranked_before_cuda_and_after_supa(judge):
    order = (
        "from accel_core.detection.discovery import discover\n"
        "import accel_klxpu, accel_cuda\n"
        "order = [c.name for c in discover()]\n"
        "assert order.index('supa') < order.index('klxpu') < order.index('cuda'), order\n"
    )
    [(verdict,), imported] = judge("klxpu", pci=(P800,), nodes=(NODE,), code=order)
    assert verdict["status"] == "not_installed"
    assert "PCI 1d22:3688" in verdict["reason"]
    assert imported == []


#: A process in which torch_xmlir has torch.cuda, beside an NVIDIA card that torch.cuda no longer shows.
TAKEN_OVER = "import sys, types\nsys.modules['torch_xmlir'] = types.ModuleType('torch_xmlir')\n"
NVIDIA = ("0000:04:00.0", "10de", "2335", "030200")


@pytest.mark.parametrize("pinned", [False, True])
def test_cuda_stands_aside_where_torch_xmlir_is_imported(judge, pinned):
    options = {"pci": (NVIDIA, P800), "nodes": ("/dev/nvidia0", NODE), "pinned": pinned}
    said, _ = judge("cuda", code=TAKEN_OVER, **options)
    for verdict in said:
        assert verdict["status"] == "stands_aside"
        assert verdict["reason"] == "torch.cuda is impersonated by torch_xmlir"
    alone, _ = judge("cuda", **options)
    assert {verdict["status"] for verdict in alone} == {"no_device"}  # this torch is a CPU build


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("libbkcl.so: cannot open shared object file", "XRE"),
        ("libxpu_blas.so: cannot open shared object file", "XRE"),
        ("[ERROR][XPURT] Initialize default context for dev -1 fail", "xpu-smi"),
        ("Cannot re-initialize CUDA in forked subprocess", "spawn"),
        ("CUDA out of memory. Tried to allocate 20.00 GiB", "xpu-smi"),
    ],
)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
