"""What the user's other settings allow, refuse and stop, and how they have it probed."""

from __future__ import annotations

import sys

import pytest
from accel_tests.asking import chosen, error, statuses
from accel_tests.plugins import NO_DEVICE

import accel_core
from accel_core.backend import Hardware, InTorch
from accel_core.detection.select import select
from accel_core.errors import BackendUnavailableError, SettingError
from accel_core.machine import devices, vendors
from accel_core.settings import read


def test_allow_and_block(several):
    assert chosen(ACCEL_BLOCK="mlu").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="sdaa").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="SDAA , cpu").chosen == "sdaa"
    assert chosen(ACCEL_ALLOW="mlu,sdaa", ACCEL_BLOCK="mlu").chosen == "sdaa"


def test_a_pin_does_not_override_the_policy(several):
    found = error(DS_ACCELERATOR="mlu", ACCEL_BLOCK="mlu")
    assert (
        "mlu (accel-mlu 1.0) is not usable: ACCEL_BLOCK names it. Next step: take mlu out of ACCEL_BLOCK."
        in str(found)
    )


def test_where_not_even_the_cpu_is_allowed_the_error_carries_the_table(several):
    """USERS 18: the reasons were under DEBUG only."""
    found = error(ACCEL_ALLOW="npu")
    assert isinstance(found, BackendUnavailableError)
    assert "The settings rule out what is usable." in str(found)
    for line in (
        "npu (accel-npu 1.0): no device: nothing on the bus",
        "mlu (accel-mlu 1.0): blocked: ACCEL_ALLOW does not name it. add mlu to ACCEL_ALLOW",
        "cpu (accel-core",
    ):
        assert line in str(found)


def test_strict_refuses_the_cpu_where_a_plugin_is_broken(torch_world):
    """USERS 17, 20."""
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = error(ACCEL_STRICT="1")
    assert str(found).startswith("ACCEL_STRICT=1 refuses the CPU, and no accelerator is usable:")
    assert "libfoo" in str(found)
    assert chosen(ACCEL_STRICT="0").chosen == "cpu"
    assert chosen(ACCEL_STRICT="1", DS_ACCELERATOR="cpu").chosen == "cpu"


def test_strict_refuses_the_cpu_where_hardware_is_there(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").chosen == "cpu"
    known = vendors.Vendor("NVIDIA GPU", "cuda", evidence=devices.Evidence(nodes=("/dev/nvidia0",)))
    monkeypatch.setattr(vendors, "known_hardware", lambda: (known,))
    assert "NVIDIA GPU is present (/dev/nvidia0)" in str(error(ACCEL_STRICT="1"))
    monkeypatch.setattr(vendors, "known_hardware", lambda: ())
    monkeypatch.setattr(
        devices, "evidence", lambda backend: devices.Evidence(pci=("19e5:d802 at 0000:00:05.0",))
    )
    assert isinstance(error(ACCEL_STRICT="1"), BackendUnavailableError)


def test_strict_refuses_the_cpu_where_two_distributions_declare_the_hardware_that_is_there(
    torch_world, monkeypatch
):
    torch_world.backend("npu", 700, distribution="accel-npu")
    torch_world.backend("npu", 600, distribution="better-npu")
    card = devices.Evidence(nodes=("/dev/davinci0",))
    monkeypatch.setattr(devices, "evidence", lambda backend: card if backend.name == "npu" else None)
    found = error(ACCEL_STRICT="1")
    assert "npu (accel-npu 1.0): conflict: better-npu 1.0 declares npu too" in str(found)
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="@better-npu").chosen == "npu"


def test_strict_has_nothing_against_what_the_user_ruled_out(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    card = devices.Evidence(nodes=("/dev/davinci0",))
    monkeypatch.setattr(devices, "evidence", lambda backend: card if backend.name == "npu" else None)
    assert isinstance(error(ACCEL_STRICT="1"), BackendUnavailableError)
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="npu").chosen == "cpu"


def test_strict_has_nothing_against_a_machine_without_accelerators(torch_world):
    assert chosen(ACCEL_STRICT="1").chosen == "cpu"


def test_hardware_without_its_plugin_is_named_with_the_command(torch_world, monkeypatch):
    known = [
        vendors.Vendor("NVIDIA GPU", "cuda", evidence=devices.Evidence(nodes=("/dev/nvidia0",))),
        vendors.Vendor("Ascend NPU", "npu", evidence=devices.Evidence(nodes=("/dev/davinci0",))),
        vendors.Vendor(
            "Intel integrated GPU", "xpu", evidence=devices.Evidence(pci=("8086",)), integrated=True
        ),
    ]
    monkeypatch.setattr(vendors, "known_hardware", lambda: tuple(known))
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen().missing_plugins == (
        "NVIDIA GPU is present (/dev/nvidia0) and its plugin is not installed: pip install accel-cuda",
    )
    monkeypatch.setenv("ACCEL_BLOCK", "cuda")  # whose plugin would not be let in
    assert chosen().missing_plugins == ()


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_isolated_probing_survives_what_a_vendor_does(several):
    several.module("torch_npu", "import os; os._exit(127)")
    several.backend("npu", 700, vendor_import="torch_npu")
    found = chosen(ACCEL_PROBE="isolated", ACCEL_PROBE_TIMEOUT="20")
    assert statuses(found)["npu"] == "crashed"
    assert found.chosen == "mlu"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_the_timeout_is_the_users(several):
    several.module("torch_npu", "import time; time.sleep(60)")
    several.backend("npu", 700, vendor_import="torch_npu", in_torch=InTorch(in_child="import"))
    found = chosen(ACCEL_PROBE_TIMEOUT="1.5")
    assert statuses(found)["npu"] == "timed_out"
    assert found.verdicts[0].reason.startswith("no answer within 1.5 s")
    assert found.chosen == "mlu"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCEL_PROBE_TIMEOUT", "abc"),
        ("ACCEL_STRICT", "perhaps"),
        ("ACCEL_PROBE", "outside"),
        ("DS_ACCELERATOR", "npu@"),
        ("ACCEL_ALLOW", "@"),
        ("ACCEL_BLOCK", "x@"),
    ],
)
def test_a_malformed_setting_stops_the_choice_by_name(several, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"{name}='{value}' is not valid"):
        accel_core.get_accelerator()
    monkeypatch.delenv(name)
    assert accel_core.get_accelerator().name == "mlu"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_a_choice_in_children_only_imports_nothing_here(several):
    environ: dict[str, str] = {}
    assert select(read(environ), isolated=True).selection.chosen == "mlu"
    assert select(read({"DS_ACCELERATOR": "mlu"}), isolated=True).selection.chosen == "mlu"
    assert "torch" not in sys.modules


def test_without_torch_there_is_an_error_that_says_so(world):
    """USERS 29: everything but the accelerator itself works without torch."""
    world.backend("npu", extra=NO_DEVICE)
    found = select(read({}))
    assert isinstance(found.error, BackendUnavailableError)
    assert "cpu (accel-core" in str(found.error)
    assert "accel setup cpu" in str(found.error)


def test_strict_always_refuses_the_cpu_on_a_machine_without_accelerators(torch_world):
    """A job that a scheduler put on a node without devices must not train on the CPU."""
    found = error(ACCEL_STRICT="always")
    assert isinstance(found, BackendUnavailableError)
    assert str(found).startswith(
        "ACCEL_STRICT=always refuses the CPU, and no accelerator is usable:\n"
        "  no plugin of an accelerator is installed\n"
    )
    assert chosen(ACCEL_STRICT="always", DS_ACCELERATOR="cpu").chosen == "cpu"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions")
def test_strict_holds_no_missing_answer_against_a_backend_without_its_device(torch_world, monkeypatch):
    """Whether its package works is then not known, which refuses nobody the CPU."""
    torch_world.module("torch_npu", "import time; time.sleep(60)")
    torch_world.backend("npu", vendor_import="torch_npu", hardware=Hardware(pci_ids=("fade/12",)))
    monkeypatch.setattr(
        devices, "evidence", lambda backend: devices.Evidence() if backend.hardware.pci_ids else None
    )
    assert chosen(ACCEL_STRICT="1", ACCEL_PROBE_TIMEOUT="1.5").chosen == "cpu"
    torch_world.module("torch_npu", "raise OSError('libnpu.so')")
    assert "libnpu.so" in str(error(ACCEL_STRICT="1"))


def test_settings_that_name_nothing_say_what_may_be_meant(torch_world):
    torch_world.backend("npu", vendor_import="torch_npu")
    record = chosen(ACCEL_BLOCK="npv,mlu,zpu", ACCEL_STRIKT="1")  # zpu: another first letter, nobody's slip
    assert record.notes == (
        "ACCEL_STRIKT is not a setting of accel-core. Did you mean ACCEL_STRICT?",
        "ACCEL_BLOCK names npv, which is not installed. Did you mean 'npu'?",
    )
    assert record.to_dict()["notes"] == list(record.notes)
    assert chosen(ACCEL_BLOCK="mlu").notes == ()
