"""What the record of a choice notes beside the verdicts, and a choice in children."""

import sys

import pytest
from accel_tests.asking import chosen, error
from accel_tests.plugins import NO_DEVICE, hook

from accel_core.hardware import bus, vendors
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import Note

posix = pytest.mark.skipif(sys.platform == "win32", reason="sessions")


def pin(text, **more):
    return {"DS_ACCELERATOR": text, **more}


NVIDIA = vendors.Vendor(
    "NVIDIA GPU", "cuda", evidence=bus.Evidence(nodes=("/dev/nvidia0",))
)


CARD = bus.Evidence(nodes=("/dev/davinci0",))


@posix
def test_hardware_without_its_plugin_is_named_with_the_command(
    torch_world, monkeypatch
):
    integrated = vendors.Vendor(
        "Intel integrated GPU",
        "xpu",
        evidence=bus.Evidence(pci=("8086",)),
        is_integrated=True,
    )
    known = (NVIDIA, vendors.Vendor("Ascend NPU", "npu", evidence=CARD), integrated)
    monkeypatch.setattr(vendors, "known_hardware", lambda: known)
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen().missing_plugins == (
        "NVIDIA GPU is present (/dev/nvidia0), but its plugin is not installed: pip install accel-cuda",
    )
    monkeypatch.setenv("ACCEL_BLOCK", "cuda")  # whose plugin would not be let in
    assert chosen().missing_plugins == ()


def test_settings_that_name_nothing_say_what_may_be_meant(torch_world):
    torch_world.backend("npu", vendor_import="torch_npu")
    record = chosen(
        ACCEL_BLOCK="npv,mlu,zpu", ACCEL_STRIKT="1"
    )  # zpu: another first letter, nobody's slip
    assert record.notes == (
        Note("accel-core has no setting ACCEL_STRIKT. Did you mean ACCEL_STRICT?"),
        Note("ACCEL_BLOCK names npv, which is not installed. Did you mean 'npu'?"),
    )
    assert record.to_dict()["notes"] == [note.text for note in record.notes]
    assert chosen(ACCEL_BLOCK="mlu").notes == ()


@posix
def test_a_choice_in_children_only_imports_nothing_here(several):
    for environ in ({}, pin("mlu")):
        assert select(read(environ), isolated=True).name == "mlu"
    assert "torch" not in sys.modules


def test_a_pinned_entry_point_whose_plugin_declares_another_name_is_told(torch_world):
    declares = "Backend(name='other', priority=1, device_type='cpu')"
    torch_world.plugin(
        "bad",
        f"from accel_core import *\n{hook('accel_backends', '', f'return {declares}')}",
    )
    assert str(error(DS_ACCELERATOR="bad")) == (
        "DS_ACCELERATOR='bad': the plugin with the entry point bad declares a backend with another "
        "name. `accel list` shows that name."
    )
