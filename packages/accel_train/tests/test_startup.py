"""What runs at every `import torch`: nothing, unless a parent process activated an integration."""

import os
import signal
import sys
import warnings

import pytest
from accel_tests.asking import chosen
from accel_tests.tools import raising

import accel_train_startup as startup
from accel_core import builtin, packages
from accel_core.torch_import import TORCH_GROUP

#: What importing and calling the entry point imports, of ours and of others, and what importing a framework
#: does after that.
IMPORTS = """
import json, sys
before = set(sys.modules)
import accel_train_startup as startup
by_import = sorted(name for name in set(sys.modules) - before if name.startswith("accel"))
before = set(sys.modules)
startup.autoload()
by_call = sorted(set(sys.modules) - before)
import accelerate
awaited = sum(isinstance(finder, startup._ImportWatcher) for finder in sys.meta_path)
print(json.dumps({
    "by import": by_import, "by call": by_call, "prepared": accelerate.prepared, "awaited": awaited,
}))
"""


@pytest.fixture
def imports(world):
    """`imports(variables)`: what a process with these variables imports, where a framework is installed."""
    world.module(
        "accelerate", "import sys\nprepared = 'accel_train.accelerate' in sys.modules"
    )
    return lambda variables: (
        world.child(IMPORTS, torch="none", bare=False, variables=variables).answer
    )


@pytest.mark.parametrize(
    "variables",
    [{}, {startup.INTEGRATIONS_VARIABLE: ""}, {startup.INTEGRATIONS_VARIABLE: "none"}],
    ids=["unset", "empty", "none"],
)
def test_without_a_named_integration_nothing_is_imported_and_no_framework_prepared(
    imports, variables
):
    """Every process that imports torch runs this."""
    found = imports(variables)
    assert found["by import"] == ["accel_train_startup"]
    assert found["by call"] == []
    assert found["prepared"] is False
    assert found["awaited"] == 0


def test_with_auto_nothing_is_imported_until_a_framework_is(imports):
    found = imports({startup.INTEGRATIONS_VARIABLE: "auto"})
    assert found["by import"] == ["accel_train_startup"]
    assert found["by call"] == []


def test_with_auto_a_framework_is_prepared_when_it_is_imported(imports):
    found = imports({startup.INTEGRATIONS_VARIABLE: "auto"})
    assert found["prepared"] is True
    assert found["awaited"] == 1


#: Whether DeepSpeed's import is awaited, and what else happened.
PREPARES = """
import json, os, sys
import accel_train_startup as startup
{call}
from accel_core import current
ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith("accel_train.")]
print(json.dumps({{
    "finders": len(ours),
    "chosen": current._chosen,
    "torch is imported": "torch" in sys.modules,
    "torch's autoload": getattr(sys.modules.get("torch"), "autoload_was", None),
    "the exit is watched": startup._registered_pid == os.getpid(),
}}))
"""
AS_TORCH_CALLS_IT = "startup.autoload()\nstartup.autoload()"
THROUGH_US = "from accel_core.torch_import import import_torch\nimport_torch()"


@pytest.mark.parametrize("names", ["deepspeed", " DeepSpeed ,"])
def test_the_named_integration_is_prepared_once_and_nothing_is_chosen(
    torch_world, names
):
    code = PREPARES.format(call=AS_TORCH_CALLS_IT)
    found = torch_world.child(
        code, variables={startup.INTEGRATIONS_VARIABLE: names}
    ).answer
    assert found["finders"] == 1
    assert found["chosen"] is None
    assert found["torch is imported"] is False


@pytest.mark.parametrize(
    ("names", "finders"), [("deepspeed", 1), ("", 0)], ids=["deepspeed", "none"]
)
def test_torch_imported_through_us_prepares_too(torch_world, names, finders):
    """Then torch's autoload is off, ours included; the end of the process is watched in any case."""
    code = PREPARES.format(call=THROUGH_US)
    found = torch_world.child(
        code, variables={startup.INTEGRATIONS_VARIABLE: names}
    ).answer
    assert found["torch's autoload"] == "0"
    assert found["finders"] == finders
    assert found["chosen"] is None
    assert found["the exit is watched"] is True


def prepared(monkeypatch, names):
    """The one warning that these names give, and what that does where warnings are errors."""
    monkeypatch.setenv(startup.INTEGRATIONS_VARIABLE, names)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        with pytest.MonkeyPatch.context() as patch:
            told = []
            patch.setattr(
                warnings,
                "showwarning",
                lambda message, *rest, **more: told.append(str(message)),
            )
            startup.autoload()
    assert caught == []
    assert len(told) == 1
    return told[0]


@pytest.mark.parametrize(
    "name", ["nothing", "..", "deepspeed._hook", "deepspeed,nothing"]
)
def test_a_name_that_cannot_be_followed_is_a_warning(world, monkeypatch, name):
    """An error here would be one of `import torch`; with `-W error` as well."""
    told = prepared(monkeypatch, name)
    assert f"ACCEL_INTEGRATIONS='{name}' cannot be applied" in told
    assert (
        f"no installed distribution provides an integration {name.rpartition(',')[2]!r}"
        in told
    )
    assert "(known: accelerate, deepspeed, deepspeed_pin, lightning)" in told
    assert "unset ACCEL_INTEGRATIONS" in told


def test_without_metadata_the_next_step_is_named(world, monkeypatch):
    monkeypatch.setattr(packages, "entry_points", lambda group: [])
    assert "(known: none; install accel-train again)" in prepared(
        monkeypatch, "deepspeed"
    )
    monkeypatch.setattr(packages, "entry_points", raising(OSError("stale file handle")))
    assert "OSError: stale file handle" in prepared(monkeypatch, "deepspeed")


FAILING = [
    ("raise ImportError('libacme.so')", "acme: ImportError: libacme.so"),
    ("def prepare(): raise SystemExit(3)", "acme: SystemExit: 3"),
    ("prepare = None", "acme: TypeError"),
]


@pytest.mark.parametrize(("source", "why"), FAILING)
def test_an_integration_of_anybodys_that_fails_stops_no_other(
    world, monkeypatch, source, why
):
    world.module("acme_trainer", source)
    world.module("good_trainer", "called = []\ndef prepare(): called.append(1)")
    integrations = {"acme": "acme_trainer:prepare", "good": "good_trainer:prepare"}
    world.distribution(
        "acme-trainer", "1.0", {startup.INTEGRATIONS_GROUP: integrations}
    )
    told = prepared(monkeypatch, "acme,good,other")
    assert why in told
    assert (
        "(known: accelerate, acme, deepspeed, deepspeed_pin, good, lightning)" in told
    )
    assert "integration 'other' " in told
    assert sys.modules["good_trainer"].called == [1]


def test_our_own_entry_point_announces_no_device(torch_world):
    """It stands in torch's group, where vendors' packages stand."""
    assert builtin.undeclared_packages(()) == []
    [generic] = [v for v in chosen().verdicts if v.name == "generic"]
    assert "no installed package adds one" in generic.reason


def test_the_entry_point_is_declared_and_leads_here():
    ours = [e for e in packages.entry_points(TORCH_GROUP) if e.name == "accel_train"]
    assert [e.load() for e in ours] == [startup.autoload], (
        "install accel-train again (./dev does)"
    )


def test_each_integration_is_declared_under_its_name():
    declared = {
        e.name: e.value for e in packages.entry_points(startup.INTEGRATIONS_GROUP)
    }
    assert declared == {
        "accelerate": "accel_train.accelerate:prepare",
        "deepspeed": "accel_train.deepspeed:prepare",
        "deepspeed_pin": "accel_train.deepspeed:prepare_pin",
        "lightning": "accel_train.lightning:prepare",
    }, "install accel-train again (./dev does)"


def test_without_a_pin_deepspeeds_pin_prepares_nothing(monkeypatch):
    monkeypatch.delenv(
        "DS_ACCELERATOR", raising=False
    )  # after torch's import, which saw a pin
    (pin,) = (
        e
        for e in packages.entry_points(startup.INTEGRATIONS_GROUP)
        if e.name == "deepspeed_pin"
    )
    assert pin.load()() is None


# --- the real torch calls it by its entry point --------------------------------------------------------


@pytest.fixture
def torch_child(world):
    """`torch_child(names)`: a process that imports the real torch."""

    def run(names):
        code = "import json, sys, torch\n"
        code += "print(json.dumps('accel_train.deepspeed' in sys.modules))"
        variables = {startup.INTEGRATIONS_VARIABLE: names, "ACCEL_UNUSED": "ignore"}
        return world.child(code, torch="real", variables=variables)

    return run


@pytest.mark.parametrize(
    ("names", "is_prepared"),
    [("", False), ("deepspeed", True)],
    ids=["none", "deepspeed"],
)
def test_the_real_torch_prepares_the_named_integration(torch_child, names, is_prepared):
    assert torch_child(names).answer is is_prepared


def test_a_name_that_cannot_be_applied_does_not_stop_the_real_torch(torch_child):
    child = torch_child("nothing")
    assert child.answer is False
    assert "cannot be applied" in child.stderr


def test_a_program_that_is_interrupted_ends_by_the_signal(world):
    """An import at the exit, of modules with named tuples, would make it status 1: loops of a shell go on."""
    code = "import accel_core; accel_core.get_accelerator(); raise KeyboardInterrupt"
    assert (
        world.child(
            code, torch="real", variables={startup.INTEGRATIONS_VARIABLE: "auto"}
        ).returncode
        == -signal.SIGINT
    )


# --- where torch's autoload is off for ranks, a folder on PYTHONPATH stands in -------------------------


@pytest.mark.parametrize(("autoload", "prepared"), [("0", 1), ("1", 0)])
def test_a_rank_whose_torch_loads_nothing_by_itself_prepares_too(
    torch_world, tmp_path, autoload, prepared
):
    """With the autoload on torch calls us itself; the environment's own `sitecustomize` runs in any case."""
    torch_world.module("acme_trainer", "called = []\ndef prepare(): called.append(1)")
    torch_world.distribution(
        "acme-trainer",
        "1.0",
        {startup.INTEGRATIONS_GROUP: {"acme": "acme_trainer:prepare"}},
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.flag_of_the_environment = True\n"
    )
    code = """
import json, sys
before = "acme_trainer" in sys.modules
import torch, os, torch
called = getattr(sys.modules.get("acme_trainer"), "called", [])
print(json.dumps([before, len(called), sys.flag_of_the_environment]))
"""
    variables = {
        "PYTHONPATH": os.pathsep.join([startup.STARTUP_FOLDER, str(tmp_path)]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
        "ACCEL_INTEGRATIONS": "acme",
    }
    assert torch_world.child(code, variables=variables).answer == [
        False,
        prepared,
        True,
    ]
