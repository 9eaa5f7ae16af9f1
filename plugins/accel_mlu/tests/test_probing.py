"""What is said of the backend on machines with and without hardware, package and the right versions."""

from __future__ import annotations

import pytest

from accel_core import hint_for
from accel_mlu import BACKEND

NODE = "/dev/cambricon_dev0"


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("mlu", 300, "mlu")
    assert BACKEND.vendor_imports == ("torch_mlu",)
    assert BACKEND.private_use1
    assert BACKEND.visible_devices == ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("cncl", "inductor")
    assert not "MLU_VISIBLE_DEVICES".startswith(BACKEND.export_envs)
    assert {"NEUWARE_HOME", "CNCL", "LD_LIBRARY", "PATH"} <= set(BACKEND.export_envs)


def test_hardware_without_the_package(machine):
    verdict = machine.probe(NODE)
    assert verdict["status"] == "not_installed"
    assert verdict["reason"] == f"torch_mlu is not installed, though the hardware is there: {NODE}"
    assert "developer.cambricon.com" in verdict["hint"]


def test_the_package_without_hardware_is_not_imported(machine):
    machine.package("raise SystemExit('imported')\n")
    verdict = machine.probe()
    assert (verdict["status"], verdict["vendor_imported"]) == ("no_device", False)
    assert "/dev/cambricon_dev" in verdict["reason"]


def test_both(machine):
    machine.package(machine.working(8))
    verdict = machine.probe(NODE)
    assert (verdict["status"], verdict["devices"]) == ("usable", 8)


@pytest.mark.parametrize("variable", BACKEND.visible_devices)
def test_every_device_is_hidden(machine, variable):
    machine.package(machine.working(0))
    verdict = machine.probe(NODE, variables={variable: "0,0"})
    assert verdict["status"] == "no_device"
    assert verdict["reason"] == f"{variable}='0,0' hides every device: '0' is there twice"


def test_torch_is_too_old(machine):
    machine.package(machine.working(1))
    machine.distribution("torch", "2.4.0")
    verdict = machine.probe(NODE)
    assert verdict["status"] == "incompatible"
    assert "torch>=2.6" in verdict["reason"]
    assert not verdict["vendor_imported"]


BROKEN = {
    "no Neuware": (
        "raise ImportError('libcnrt.so: cannot open shared object file: No such file or directory')",
        "NEUWARE_HOME",
    ),
    "another torch": (
        "raise ImportError('torch_mlu/_MLUC.so: undefined symbol: _ZN3c105ErrorC2E')",
        "1.22.0+torch2.4.0 is for torch 2.4.0",
    ),
    "half installed": ("from torch_mlu import _MLUC", "install the torch_mlu made for your torch"),
    "a second vendor": (
        "raise RuntimeError('torch.register_privateuse1_backend() has already been set! Current: npu')",
        "DS_ACCELERATOR=mlu",
    ),
    "no driver": ("raise RuntimeError('cninit failed: no driver')", "cnmon"),
    "it exits": ("raise SystemExit('please set NEUWARE_HOME: libcndrv.so')", "NEUWARE_HOME"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_the_package_is_broken(machine, way):
    source, hint = BROKEN[way]
    machine.package(source)
    verdict = machine.probe(NODE)
    assert verdict["status"] == "broken"
    assert verdict["reason"].startswith("torch_mlu failed: ")
    assert hint in verdict["hint"]


def test_another_vendor_holds_privateuse1(machine):
    machine.package(machine.working(1))
    verdict = machine.probe(NODE, before="torch._C.private_use1 = 'npu'")
    assert verdict["status"] == "broken"
    assert "held by npu" in verdict["reason"]
    assert not verdict["vendor_imported"]


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("libcnnl.so.1: cannot open shared object file", "LD_LIBRARY_PATH"),
        ("libmluops.so: cannot open shared object file", "LD_LIBRARY_PATH"),
        ("Cannot re-initialize MLU in forked subprocess. To use MLU with multiprocessing", "spawn"),
        ("Can't initialize CNDEV", "cnmon"),
        ("MLU out of memory. Tried to allocate 20.00 GiB", "cnmon"),
    ],
)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libcudart.so.12: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
