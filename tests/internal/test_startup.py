"""What runs at every `import torch`: nothing, unless a parent process activated an integration."""

from __future__ import annotations

import sys
import warnings

import pytest
from accel_testing.asking import chosen

import accel_core
from accel_core._support import startup
from accel_core.detection import builtin
from accel_core.settings import ACCEL_INTEGRATIONS


def test_without_the_variable_nothing_is_imported(world):
    """Every process that imports torch runs this; with the variable set to nothing too."""
    code = (
        "import json, sys; from accel_core._support import startup; "
        "before = set(sys.modules); startup.autoload();"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert world.child(code, torch="none").answer == []
    assert world.child(code, torch="none", variables={"ACCEL_INTEGRATIONS": ""}).answer == []


def test_importing_it_imports_only_the_root(world):
    code = (
        "import json, sys; before = set(sys.modules); from accel_core._support import startup;"
        "print(json.dumps(sorted(n for n in set(sys.modules) - before if n.startswith('accel'))))"
    )
    assert world.child(code, torch="none", bare=False).answer == [
        "accel_core",
        "accel_core._support",
        "accel_core._support.startup",
    ]


def test_the_named_integration_is_prepared_and_nothing_is_chosen(world):
    code = """
import json, sys
from accel_core._support import startup
startup.autoload()
startup.autoload()
from accel_core import current
ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith("accel_core.")]
print(json.dumps([len(ours), current._chosen, "torch" in sys.modules]))
"""
    child = world.child(code, torch="none", variables={ACCEL_INTEGRATIONS.name: "deepspeed"})
    assert child.answer == [1, None, False]


@pytest.mark.parametrize("name", ["nothing", "..", "deepspeed._hook", "deepspeed,nothing"])
def test_a_name_that_cannot_be_followed_is_a_warning(monkeypatch, name):
    """An error here would be one of `import torch`; with `-W error` as well."""
    monkeypatch.setenv(ACCEL_INTEGRATIONS.name, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr(warnings, "showwarning", lambda message, *rest, **more: said.append(str(message)))
            startup.autoload()
    assert caught == []
    assert len(said) == 1
    assert f"ACCEL_INTEGRATIONS='{name}' cannot be followed" in said[0]
    assert "unset ACCEL_INTEGRATIONS" in said[0]


def test_torch_imported_through_us_prepares_too(torch_world):
    """Then torch's autoload is off, ours included."""
    code = """
import json, sys
from accel_core._support.torch_import import import_torch
import_torch()
ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith("accel_core.")]
print(json.dumps([len(ours), sys.modules["torch"].autoload_was]))
"""
    variables = {ACCEL_INTEGRATIONS.name: "deepspeed"}
    assert torch_world.child(code, variables=variables).answer == [1, "0"]
    assert torch_world.child(code).answer == [0, "0"]


def test_our_own_entry_point_announces_no_device(torch_world):
    """It stands in torch's group, where vendors' packages stand."""
    torch_world.distribution(
        "accel-core", "9.9", {"torch.backends": {"accel_core": "accel_core._support.startup:autoload"}}
    )
    assert builtin._announced(()) == []
    [generic] = [v for v in chosen().verdicts if v.name == "generic"]
    assert "no package announces one to torch" in generic.reason
    assert "torch" not in sys.modules


def test_the_entry_point_is_declared_and_leads_here():
    from accel_core.detection.entry_points import find_entry_points

    ours = [e for e in find_entry_points(builtin.TORCH_GROUP) if e.name == "accel_core"]
    assert [e.load() for e in ours] == [startup.autoload], "install accel-core again (./dev does)"


@pytest.mark.slow
def test_the_real_torch_runs_it(world):
    """torch calls it by its entry point, and warnings as errors do not reach `import torch`."""
    world.distribution(
        "accel-core", "9.9", {"torch.backends": {"accel_core": "accel_core._support.startup:autoload"}}
    )
    code = "import torch, sys, json; print(json.dumps('accel_core.integrations.deepspeed' in sys.modules))"
    named = {ACCEL_INTEGRATIONS.name: "deepspeed"}
    assert world.child(code, torch="real", variables=named).answer is True
    assert world.child(code, torch="real").answer is False
    broken = world.child(code, torch="real", variables={ACCEL_INTEGRATIONS.name: "nothing"})
    assert broken.answer is False
    assert "cannot be followed" in broken.stderr


def test_the_variable_is_the_one_in_the_table():
    assert ACCEL_INTEGRATIONS in accel_core.settings.VARIABLES
    assert ACCEL_INTEGRATIONS.name == startup.VARIABLE
