"""What runs at every `import torch`: nothing, unless a parent process activated an integration."""

import os
import signal
import sys
import warnings

import pytest
from accel_tests.asking import chosen
from accel_tests.tools import raising

import accel_train_startup as startup
from accel_core._support import packages
from accel_core._support.torch_import import TORCH_GROUP
from accel_core.detection import discovery


def test_nothing_is_imported_before_a_framework_is(world):
    """Every process that imports torch runs this; with `auto` a framework is prepared when it is imported."""
    world.module("accelerate", "import sys\nprepared = 'accel_train.accelerate' in sys.modules")
    code = """
import json, sys
before = set(sys.modules)
import accel_train_startup as startup
ours = [name for name in set(sys.modules) - before if name.startswith("accel")]
before = set(sys.modules)
startup.autoload()
more = sorted(set(sys.modules) - before)
import accelerate
awaited = sum(isinstance(finder, startup._Awaited) for finder in sys.meta_path)
print(json.dumps([ours, more, accelerate.prepared, awaited]))
"""
    for variables in ({}, *({startup.VARIABLE: name} for name in ("", "none", "auto"))):
        child = world.child(code, torch="none", bare=False, variables=variables)
        is_auto = "auto" in variables.values()
        assert child.answer == [["accel_train_startup"], [], is_auto, int(is_auto)]


def test_the_named_integration_is_prepared_and_nothing_is_chosen(torch_world):
    """By torch, which is not imported here; and where torch is imported through us, with its autoload off."""
    code = """
import json, os, sys
from accel_core._support.torch_import import import_torch
import accel_train_startup as startup
{call}
from accel_core import current
ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith("accel_train.")]
torch = getattr(sys.modules.get("torch"), "autoload_was", None)
print(json.dumps([len(ours), current._chosen, torch, startup._pid == os.getpid()]))
"""
    twice = "startup.autoload(), startup.autoload()"
    calls = [
        ("deepspeed", twice),
        (" DeepSpeed ,", twice),
        ("deepspeed", "import_torch()"),
        ("", "import_torch()"),
    ]
    for named, call in calls:
        child = torch_world.child(code.format(call=call), variables={startup.VARIABLE: named})
        assert child.answer == [int(bool(named)), None, None if call == twice else "0", True]


def prepared(monkeypatch, names):
    """The one warning that these names give, and what that does where warnings are errors."""
    monkeypatch.setenv(startup.VARIABLE, names)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        with pytest.MonkeyPatch.context() as patch:
            told = []
            patch.setattr(warnings, "showwarning", lambda message, *rest, **more: told.append(str(message)))
            startup.autoload()
    assert caught == []
    assert len(told) == 1
    return told[0]


@pytest.mark.parametrize("name", ["nothing", "..", "deepspeed._hook", "deepspeed,nothing"])
def test_a_name_that_cannot_be_followed_is_a_warning(world, monkeypatch, name):
    """An error here would be one of `import torch`; with `-W error` as well."""
    told = prepared(monkeypatch, name)
    assert f"ACCEL_INTEGRATIONS='{name}' cannot be applied" in told
    assert f"no installed distribution provides an integration {name.rpartition(',')[2]!r}" in told
    assert "(known: accelerate, deepspeed, deepspeed_pin, lightning, torchs_locks)" in told
    assert "unset ACCEL_INTEGRATIONS" in told


def test_without_metadata_the_next_step_is_named(world, monkeypatch):
    monkeypatch.setattr(packages, "entry_points", lambda group: [])
    assert "(known: none; install accel-train again)" in prepared(monkeypatch, "deepspeed")
    monkeypatch.setattr(packages, "entry_points", raising(OSError("stale file handle")))
    assert "OSError: stale file handle" in prepared(monkeypatch, "deepspeed")


FAILING = [
    ("raise ImportError('libacme.so')", "acme: ImportError: libacme.so"),
    ("def prepare(): raise SystemExit(3)", "acme: SystemExit: 3"),
    ("prepare = None", "acme: TypeError"),
]


@pytest.mark.parametrize(("source", "why"), FAILING)
def test_an_integration_of_anybodys_that_fails_stops_no_other(world, monkeypatch, source, why):
    world.module("acme_trainer", source)
    world.module("good_trainer", "called = []\ndef prepare(): called.append(1)")
    integrations = {"acme": "acme_trainer:prepare", "good": "good_trainer:prepare"}
    world.distribution("acme-trainer", "1.0", {startup.GROUP: integrations})
    told = prepared(monkeypatch, "acme,good,other")
    assert why in told
    assert "(known: accelerate, acme, deepspeed, deepspeed_pin, good, lightning, torchs_locks)" in told
    assert "integration 'other' " in told
    assert sys.modules["good_trainer"].called == [1]


def test_our_own_entry_point_announces_no_device(torch_world):
    """It stands in torch's group, where vendors' packages stand."""
    assert discovery.unclaimed(()) == []
    [generic] = [v for v in chosen().verdicts if v.name == "generic"]
    assert "no package announces one to torch" in generic.reason


def test_the_entry_point_is_declared_and_leads_here(monkeypatch):
    from accel_core._support.packages import entry_points

    ours = [e for e in entry_points(TORCH_GROUP) if e.name == "accel_train"]
    assert [e.load() for e in ours] == [startup.autoload], "install accel-train again (./dev does)"
    names = ("accelerate", "deepspeed", "lightning", "ops.torchs_locks")
    known = {*(f"accel_train.{name}:prepare" for name in names), "accel_train.deepspeed:prepare_pin"}
    assert {e.value for e in entry_points(startup.GROUP)} == known, "install accel-train again"
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)  # after torch's import, which saw a pin
    assert [e.load()() for e in entry_points(startup.GROUP) if e.name == "deepspeed_pin"] == [None]


def test_the_real_torch_runs_it(world, tmp_path):
    """torch calls it by its entry point, and warnings as errors do not reach `import torch`.

    With `auto` a lock of torch's own builds goes whose holder is gone: nobody has it open.
    """
    lock = tmp_path / "py311_cpu" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1, 1))
    code = "import sys, torch.utils.cpp_extension; print(str('accel_train.deepspeed' in sys.modules).lower())"
    removed = f"accel: removed {lock}: the process that was compiling there is gone"
    for named, words in [("", ""), ("deepspeed", ""), ("nothing", "cannot be applied"), ("auto", removed)]:
        variables = {startup.VARIABLE: named, "TORCH_EXTENSIONS_DIR": str(tmp_path), "ACCEL_UNUSED": "ignore"}
        child = world.child(code, torch="real", variables=variables)
        assert child.answer is (named == "deepspeed")
        assert words in child.stderr
        assert lock.exists() is (named != "auto")


def test_a_program_that_is_interrupted_ends_by_the_signal(world):
    """An import at the exit, of modules with named tuples, would make it status 1: loops of a shell go on."""
    code = "import accel_core; accel_core.get_accelerator(); raise KeyboardInterrupt"
    assert world.child(code, torch="real", variables={startup.VARIABLE: "auto"}).returncode == -signal.SIGINT


# --- where torch's autoload is off for ranks, a folder on PYTHONPATH stands in -------------------------


@pytest.mark.parametrize(("autoload", "prepared"), [("0", 1), ("1", 0)])
def test_a_rank_whose_torch_loads_nothing_by_itself_prepares_too(torch_world, tmp_path, autoload, prepared):
    """With the autoload on torch calls us itself; the environment's own `sitecustomize` runs in any case."""
    torch_world.module("acme_trainer", "called = []\ndef prepare(): called.append(1)")
    torch_world.distribution("acme-trainer", "1.0", {startup.GROUP: {"acme": "acme_trainer:prepare"}})
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.flag_of_the_environment = True\n")
    code = """
import json, sys
before = "acme_trainer" in sys.modules
import torch, os, torch
called = getattr(sys.modules.get("acme_trainer"), "called", [])
print(json.dumps([before, len(called), sys.flag_of_the_environment]))
"""
    variables = {
        "PYTHONPATH": os.pathsep.join([startup.AT_START, str(tmp_path)]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
        "ACCEL_INTEGRATIONS": "acme",
    }
    assert torch_world.child(code, variables=variables).answer == [False, prepared, True]
