"""The doctor's topics on who takes torch's one slot, and who patched what: compared in child processes."""

import subprocess
import sys

import pytest
from accel_tests import layouts
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import TorchIntegration
from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics import monkeypatches, privateuse1

# ---------------------------------------------------------------------------- topics privateuse1
# The doctor's topic PrivateUse1: who wants torch's one slot, who gets it, what that leaves out.


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
        "aurora (accel-aurora 1.0) gets the slot, because aurora is chosen" in one.what
    )
    assert (
        "cpu is chosen, so the slot stays free"
        in only(Level.OK, "one", DS_ACCELERATOR="cpu").what
    )


def test_of_two_the_chosen_one_gets_it_and_the_other_is_named(torch_world):
    wants(torch_world, "aurora", 600)
    wants(torch_world, "borealis", 300)
    finding = only(Level.WARNING, "several")
    assert finding.what.startswith(
        "aurora and borealis claim torch's only PrivateUse1 slot; "
        "aurora (accel-aurora 1.0) gets the slot, because aurora is chosen"
    )
    assert finding.step.startswith("DS_ACCELERATOR=borealis ")
    assert list(finding.facts) == [
        "aurora (accel-aurora 1.0)",
        "borealis (accel-borealis 1.0)",
    ]
    pinned = only(Level.WARNING, "several", DS_ACCELERATOR="borealis")
    assert pinned.step.startswith("DS_ACCELERATOR=aurora ")
    assert "borealis (accel-borealis 1.0) gets the slot" in pinned.what
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
        "import torch_zpu before the accelerator is chosen, try `accel --import torch_zpu list`, or write "
        "its plugin: accel new"
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
    assert finding.step == "write its plugin: accel new xla --no-private-use1"


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


# ---------------------------------------------------------------------------- topics patched
# The doctor's topic on who patched what: compared before and after, in child processes.


#: A torch of a few lines, with what torch has and the simulated one of the other tests does not need.
TORCH = """
import math
from torch import cuda, version
from torch.version import __version__
class Tensor:
    def to(self): ...
gather = math.hypot
cuda.is_available = math.isnan
"""

PATCHES = """
import builtins, functools, os, signal, subprocess, sys, threading
import torch

def gather(*arguments): pass
torch.gather = gather
torch.Tensor.to = gather
torch.cuda.is_available = functools.wraps(torch.cuda.is_available)(lambda *_: True)
torch.borealis = type(sys)("torch_borealis.device")

def getenv(*arguments): return "patched"
os.environ.get = getenv
builtins.sorted = functools.partial(getenv, 1)
subprocess.run = getenv
signal.signal(signal.SIGTERM, getenv)
sys.excepthook = getenv
os.environ["MASTER_PORT"] = "12345"
os.environ["BOREALIS_QUIET"] = "1"
os.umask(0o027)
os.chdir("/")
threading.Thread(target=threading.Event().wait, name="borealis watcher", daemon=True).start()
"""


def changes(**variables):
    return list(
        monkeypatches.TOPIC.examine(DiagnosticContext(read(variables), variables))
    )


def test_nothing_is_changed_by_those_that_behave(torch_world):
    torch_world.module("torch_aurora", "import json\n")
    torch_world.backend("aurora", vendor_import="torch_aurora")
    [finding] = changes()
    assert finding.level == Level.OK
    assert finding.code == "monkeypatches.nothing"


def test_what_a_vendors_package_replaces_is_named_with_where_it_comes_from(world):
    world.module("torch.__init__", TORCH)
    world.module("torch.version", "__version__ = '2.99.0'\n")
    world.module("torch.cuda", "")
    world.module("torch_borealis", PATCHES)
    world.backend("borealis", vendor_import="torch_borealis")
    found = {f.code: f for f in changes()}
    assert {f.about for f in found.values()} == {"borealis"}
    assert {code: (f.level, dict(f.facts)) for code, f in found.items()} == {
        "monkeypatches.torch": (
            Level.OK,
            {"torch.Tensor.to": "torch_borealis", "torch.gather": "torch_borealis"},
        ),
        "monkeypatches.device": (Level.WARNING, {"torch.cuda.is_available": "torch_borealis"}),
        "monkeypatches.python": (
            Level.WARNING,
            dict.fromkeys(("os.environ.get", "sorted", "subprocess.run"), "torch_borealis"),
        ),
        "monkeypatches.signal": (Level.WARNING, {"SIGTERM": "torch_borealis"}),
        "monkeypatches.hook": (Level.OK, {"sys.excepthook": "torch_borealis"}),
        "monkeypatches.shared-variable": (Level.WARNING, {"MASTER_PORT": "12345"}),
        "monkeypatches.variable": (Level.OK, {"BOREALIS_QUIET": "1"}),
        "monkeypatches.umask": (Level.WARNING, {"umask": "027"}),
        "monkeypatches.folder": (Level.WARNING, {"folder": "/"}),
        "monkeypatches.thread": (
            Level.OK,
            {"borealis watcher": found["monkeypatches.thread"].facts["borealis watcher"]},
        ),
    }  # fmt: skip
    assert found["monkeypatches.python"].what == (
        "importing torch_borealis replaces functions of Python: os.environ.get, sorted, subprocess.run"
    )
    assert found["monkeypatches.python"].step.startswith("ACCEL_BLOCK=borealis ")


def test_a_package_that_dies_or_is_blocked_costs_nothing(torch_world):
    torch_world.module("torch_aurora", "import os; os._exit(3)")
    torch_world.backend("aurora", vendor_import="torch_aurora")
    [finding] = changes()
    assert finding.level == Level.OK
    assert finding.code == "monkeypatches.unknown"
    assert finding.about == "aurora"
    torch_world.module("torch_borealis", PATCHES)
    torch_world.backend("borealis", vendor_import="torch_borealis")
    assert [f.code for f in changes(ACCEL_BLOCK="borealis,aurora")] == [
        "monkeypatches.nothing"
    ]
    left = "import os\nos.environ['AURORA_FAILED'] = '1'\nraise ImportError('libaurora.so')\n"
    torch_world.module("torch_aurora", left)
    [finding] = changes(ACCEL_BLOCK="borealis")
    assert finding.code == "monkeypatches.variable"
    assert dict(finding.facts) == {"AURORA_FAILED": "1"}


def test_a_plugin_that_changes_the_process_is_named_with_its_line(torch_world):
    before = subprocess.list2cmdline
    torch_world.backend("aurora", vendor_import="torch")
    early = "\nimport subprocess\ndef quoted(*arguments): pass\nsubprocess.list2cmdline = quoted\n"
    torch_world.backend("borealis", vendor_import="torch", extra=early)
    [finding] = changes()
    assert finding.level == Level.WARNING
    assert finding.code == "monkeypatches.plugin"
    assert finding.about == "borealis"
    line = 1 + (torch_world.site / "accel_borealis.py").read_text().splitlines().index(
        "def quoted(*arguments): pass"
    )
    assert finding.what == (
        "the plugin accel-borealis 1.0 replaces subprocess.list2cmdline during discovery "
        f"(accel_borealis.py, line {line})"
    )
    assert finding.step.startswith("report this to the maintainers of accel-borealis: ")
    assert subprocess.list2cmdline is before  # nobody imported it here


def test_what_plugins_do_is_not_asked_again_where_all_behave(torch_world, monkeypatch):
    """One child for all of them: a healthy visit must not pay one for each."""
    from accel_core.sandbox import child

    for name in ("aurora", "borealis", "calima"):
        torch_world.backend(name, vendor_import="torch")
    started = []
    run = child.run

    def counted(function, *job, **options):
        started.append(function.__name__)
        return run(function, *job, **options)

    monkeypatch.setattr(child, "run", counted)
    assert [f.code for f in changes()] == ["monkeypatches.nothing"]
    assert started == ["_declare_in_child", "observe_in_child"]


def test_a_distribution_with_no_backend_left_is_passed_over(torch_world):
    layouts.dist_info(
        torch_world.site,
        "accel-empty",
        "1.0",
        {layouts.GROUP: {"empty": "accel_empty_is_no"}},
    )
    torch_world.set_path([torch_world.site])
    assert [f.code for f in changes()] == ["monkeypatches.nothing"]
