"""What is said of the backend on machines with and without hardware, package and the right versions."""

from __future__ import annotations

import pytest

from accel_core import hint_for
from accel_sdaa import BACKEND

NODE = "/dev/tcaicard0"
SETVARS = "source /opt/tecoai/setvars.sh"


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("sdaa", 600, "sdaa")
    assert BACKEND.vendor_imports == ("torch_sdaa",)
    assert BACKEND.private_use1
    assert BACKEND.visible_devices == ("SDAA_VISIBLE_DEVICES",)
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("tccl", "teco_inductor")
    assert {"TCCL", "SDAA", "TECO", "TORCH_SDAA", "LD_LIBRARY", "PATH"} == set(BACKEND.export_envs)


def test_a_scsi_disk_is_no_card():
    assert BACKEND.device_nodes == ("/dev/tcaicard[0-9]*",)
    assert BACKEND.pci_ids == ()


def test_hardware_without_the_package(machine):
    verdict = machine.probe(NODE)
    assert verdict["status"] == "not_installed"
    assert verdict["reason"] == f"torch_sdaa is not installed, though the hardware is there: {NODE}"
    assert "TecoPyTorch" in verdict["hint"]


def test_the_package_without_hardware_is_not_imported(machine):
    machine.package("raise SystemExit('imported')\n")
    verdict = machine.probe()
    assert (verdict["status"], verdict["vendor_imported"]) == ("no_device", False)


def test_one_card_is_four_devices(machine):
    # At its import torch_sdaa prints a table of versions, which must not get into a program's output.
    machine.package(machine.working(4) + "print('Torch-SDAA   | 3.2.1b0')\n")
    verdict = machine.probe(NODE)
    assert (verdict["status"], verdict["devices"]) == ("usable", 4)


def test_every_device_is_hidden(machine):
    machine.package(machine.working(0))
    verdict = machine.probe(NODE, variables={"SDAA_VISIBLE_DEVICES": ""})
    assert verdict["reason"] == "SDAA_VISIBLE_DEVICES='' hides every device"


def test_a_value_that_is_not_valid_is_named(machine):
    machine.package(machine.working(0))
    verdict = machine.probe(NODE, variables={"SDAA_VISIBLE_DEVICES": "0-3"})
    assert verdict["reason"].startswith("SDAA_VISIBLE_DEVICES='0-3' is not valid: ")


def test_a_device_count_is_missing(machine):
    machine.package(machine.working(4) + "del torch.sdaa.device_count\n__version__ = '3.2.1b0'\n")
    verdict = machine.probe(NODE)
    assert verdict["status"] == "broken"
    assert "device_count is not supported by torch_sdaa 3.2.1b0" in verdict["reason"]


@pytest.mark.parametrize("version", ["2.0.0a0+gitdfe6533", "2.4.0"])
def test_torch_is_too_old(machine, version):
    machine.package(machine.working(1))
    machine.distribution("torch", version)
    verdict = machine.probe(NODE)
    assert verdict["status"] == "incompatible"
    assert "torch>=2.6" in verdict["reason"]


BROKEN = {
    "no runtime": ("raise ImportError('libsdaart.so: cannot open shared object file')", SETVARS),
    "no libraries": ("raise ImportError('libtecodnn_ext.so: cannot open shared object file')", SETVARS),
    "no TCCL": ("raise OSError('libtccl.so: cannot open shared object file')", SETVARS),
    "another torch": ("raise ImportError('_C.so: undefined symbol: _ZN2at')", "made for your torch"),
    "a second vendor": (
        "raise RuntimeError('torch.register_privateuse1_backend() has already been set! Current: npu')",
        "DS_ACCELERATOR=sdaa",
    ),
}


@pytest.mark.parametrize("way", BROKEN)
def test_the_package_is_broken(machine, way):
    source, hint = BROKEN[way]
    machine.package(source)
    verdict = machine.probe(NODE)
    assert verdict["status"] == "broken"
    assert verdict["reason"].startswith("torch_sdaa failed: ")
    assert hint in verdict["hint"]


def test_another_vendor_holds_privateuse1(machine):
    machine.package(machine.working(1))
    verdict = machine.probe(NODE, before="torch._C.private_use1 = 'npu'")
    assert verdict["status"] == "broken"
    assert "held by npu" in verdict["reason"]


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Cannot re-initialize SDAA in forked subprocess", "spawn"),
        ("SDAA out of memory. Tried to allocate 20.00 GiB", "teco-smi"),
    ],
)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
