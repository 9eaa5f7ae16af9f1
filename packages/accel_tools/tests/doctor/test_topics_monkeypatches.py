"""The doctor's topic on monkey-patches: state before and after an import, compared in child processes."""

import subprocess

from accel_tests import layouts

from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics import monkeypatches

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
    step = found["monkeypatches.python"].step
    assert step.endswith(": export ACCEL_BLOCK=borealis")


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
    assert started == ["_load_plugins_in_child", "observe_in_child"]


def test_a_distribution_with_no_backend_left_is_passed_over(torch_world):
    layouts.dist_info(
        torch_world.site,
        "accel-empty",
        "1.0",
        {layouts.GROUP: {"empty": "accel_empty_is_no"}},
    )
    torch_world.set_path([torch_world.site])
    assert [f.code for f in changes()] == ["monkeypatches.nothing"]
