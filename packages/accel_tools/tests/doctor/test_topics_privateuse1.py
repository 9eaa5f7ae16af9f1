"""The doctor's topic PrivateUse1: which packages want torch's one slot, and which gets it."""

import sys

import pytest
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import TorchIntegration
from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics import privateuse1

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


def wants(world, name, priority, *, torch_loads=False, extra=""):
    world.module(f"torch_{name}", "def autoload(): pass\n")
    if torch_loads:
        group = {"torch.backends": {name: f"torch_{name}:autoload"}}
        world.distribution(f"torch-{name}", "2.13", group)
    taken = TorchIntegration(private_use1=True)
    world.backend(
        name,
        priority,
        vendor_import=f"torch_{name}",
        torch_integration=taken,
        extra=extra,
    )


def said(**variables):
    return list(
        privateuse1.TOPIC.examine(DiagnosticContext(read(variables), variables))
    )


def only(level, code, **variables):
    """The one finding, which is of that level and code."""
    [finding] = said(**variables)
    assert finding.level == level
    assert finding.code == f"privateuse1.{code}"
    return finding


def test_nobody_and_one(torch_world):
    only(Level.OK, "unwanted")
    wants(torch_world, "aurora", 600)
    one = only(Level.OK, "one")
    assert one.about == "aurora"
    assert (
        "aurora (accel-aurora 1.0) gets PrivateUse1, because aurora is chosen"
        in one.what
    )
    assert (
        "cpu is chosen, so PrivateUse1 stays free"
        in only(Level.OK, "one", DS_ACCELERATOR="cpu").what
    )


def test_of_two_the_chosen_one_gets_it_and_the_other_is_named(torch_world):
    wants(torch_world, "aurora", 600)
    wants(torch_world, "borealis", 300)
    finding = only(Level.WARNING, "several")
    assert finding.what.startswith(
        "aurora and borealis claim torch's only PrivateUse1 slot; "
        "aurora (accel-aurora 1.0) gets PrivateUse1, because aurora is chosen"
    )
    assert "(export DS_ACCELERATOR=borealis)" in finding.step
    assert list(finding.facts) == [
        "aurora (accel-aurora 1.0)",
        "borealis (accel-borealis 1.0)",
    ]
    pinned = only(Level.WARNING, "several", DS_ACCELERATOR="borealis")
    assert "(export DS_ACCELERATOR=aurora)" in pinned.step
    assert "borealis (accel-borealis 1.0) gets PrivateUse1" in pinned.what
    assert only(Level.OK, "one", ACCEL_BLOCK="aurora").about == "borealis"


def test_torchs_autoload_may_give_it_to_another_one(torch_world):
    wants(torch_world, "aurora", 600, torch_loads=True, extra=NO_DEVICE)
    wants(torch_world, "borealis", 300)
    several, autoload = said()
    assert several.code == "privateuse1.several"
    assert autoload.level == Level.WARNING
    assert autoload.about == "borealis"
    assert autoload.code == "privateuse1.autoload"
    assert "torch-aurora 2.13" in autoload.what
    assert (
        autoload.step
        == "export TORCH_DEVICE_BACKEND_AUTOLOAD=0, or pip uninstall torch-aurora"
    )
    only(Level.WARNING, "several", DS_ACCELERATOR="aurora")
    only(Level.WARNING, "several", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def registers(world, name, source, *, requires="torch>=2.4"):
    """Install a package as pip does, with its list of files."""
    world.distribution(f"torch-{name}", "0.2")
    world.module(f"torch_{name}.__init__", source)
    info = next(world.site.glob(f"torch*{name}-0.2.dist-info"))
    (info / "METADATA").write_text(
        f"Name: torch-{name}\nVersion: 0.2\nRequires-Dist: {requires}\n"
    )
    (info / "RECORD").write_text(
        f"torch_{name}/__init__.py,,\n{info.name}/METADATA,,\n"
    )


RENAMES = "import torch\ntorch.utils.rename_privateuse1_backend('zpu')\n"


def test_a_package_that_registers_a_device_and_tells_nobody_is_named(torch_world):
    """As torch-directml 0.2.5 does."""
    registers(torch_world, "zpu", RENAMES)
    registers(torch_world, "tools", "import torch\n")
    registers(torch_world, "searching", RENAMES, requires="torch-zpu")
    registers(
        torch_world, "suite", "# Knows: rename_privateuse1_backend('name')\n"
    )  # as torchcts 0.4.1 does
    finding, _ = said()
    assert finding.level == Level.WARNING
    assert finding.about == "torch_zpu"
    assert finding.code == "privateuse1.no-entry-point"
    assert finding.what.startswith(
        "torch-zpu 0.2 registers a device with torch when it is imported (torch_"
    )
    assert finding.step == (
        "import torch_zpu before the accelerator is chosen, as in `accel --import torch_zpu list`, or write "
        "a plugin for the device: accel new"
    )
    torch_world.backend(
        "zpu",
        600,
        vendor_import="torch_zpu",
        torch_integration=TorchIntegration(private_use1=True),
    )
    only(Level.OK, "one")
    registers(torch_world, "xla", "", requires="numpy")  # as torch_xla 2.9.0
    finding, _ = said()
    assert (
        finding.what
        == "torch-xla 0.2 has the device 'xla', which torch.accelerator does not support"
    )
    step = "write a plugin for the device: accel new xla --no-private-use1"
    assert finding.step == step


def test_list_and_why_name_it_too_once(accel):
    """Issue 23: they said that nothing was wrong, without its name."""
    registers(accel.world, "zpu", RENAMES)
    for words in (["list"], ["why"]):
        said = accel(*words).stdout
        assert (
            said.count(
                "torch-zpu 0.2 registers a device with torch when it is imported"
            )
            == 1
        ), said
        assert "accel --import torch_zpu list" in said
        assert (
            "torch-zpu 0.2 registers"
            not in accel("--import", "torch_zpu", *words).stdout
        )
    accel.world.backend(
        "zpu",
        600,
        vendor_import="torch_zpu",
        torch_integration=TorchIntegration(private_use1=True),
    )
    for words in (["list"], ["why"]):
        assert "torch-zpu 0.2 registers" not in accel(*words).stdout
