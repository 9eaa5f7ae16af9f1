"""Whatever is wrong with a plugin is a fault of that one alone."""

from __future__ import annotations

import pytest
from accel_tests import plugins
from accel_tests.asking import only
from accel_tests.plugins import arguments, declaring

from accel_core.detection import Candidate, Unloaded
from accel_core.detection.select import discover
from accel_core.errors import InvalidBackendError, root_cause

RAISING = {
    "ImportError": (
        "raise ImportError('libfoo.so: cannot open shared object file')",
        "ImportError: libfoo.so",
    ),
    "OSError": ("raise OSError('libhccl.so: no such file')", "OSError: libhccl.so"),
    "AttributeError": (
        "import json; json._autoload",
        "AttributeError: module 'json' has no attribute '_autoload'",
    ),
    "RuntimeError": ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
    "SyntaxError": ("def (:", "SyntaxError"),
    "sys.exit": ("import sys; sys.exit(3)", "SystemExit: it tried to end the process with 3"),
    "sys.exit text": ("import sys; sys.exit('bye')", "SystemExit: it tried to end the process with 'bye'"),
    "ValueError": ("int('x')", "ValueError: invalid literal"),
    "no text": ("raise RuntimeError", "RuntimeError"),
    "no message": (
        "class Mute(Exception):\n    def __str__(self): raise TypeError\nraise Mute",
        "Mute: (its message cannot be read)",
    ),
    "dependency": (
        "import a_module_that_is_missing",
        "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
    ),
}


@pytest.mark.parametrize(("source", "said"), RAISING.values(), ids=RAISING)
def test_a_plugin_that_fails_to_import_is_a_fault_and_hides_nobody(world, source, said):
    """USERS 5, 6, 8: whatever one plugin throws, it is a candidate with a fault and the others are there."""
    world.plugin("bad", source)
    world.backend("npu")
    bad = only("bad")
    assert isinstance(bad, Unloaded)
    assert bad.outcome.reason.startswith("the plugin failed to load: " + said)
    assert "entry point bad = 'accel_bad'" in bad.outcome.reason
    assert "pip install --force-reinstall accel-bad" in bad.outcome.hint
    assert isinstance(only("npu"), Candidate)


def test_a_plugin_of_an_accel_core_that_was_imported_anew_is_not_at_fault(world):
    world.backend("npu")
    code = """
import sys
from accel_core.detection.select import discover
discover()
for name in [name for name in sys.modules if name.partition(".")[0] == "accel_core"]:
    del sys.modules[name]
from accel_core.detection.select import discover
[outcome] = [c.outcome for c in discover() if c.name == "npu"]
print(outcome.reason, outcome.hint, sep="\\n")
"""
    reason, hint = world.child(code, torch="none").stdout.splitlines()
    assert reason.startswith(
        "the plugin holds on to an accel_core that was reloaded, or imported anew, since ("
    )
    assert hint == "start Python again, or import the plugin's modules anew as well"


def test_the_first_cause_of_a_chain_is_named(world):
    """USERS 3: "failed to load" hid an undefined symbol."""
    world.plugin(
        "bad",
        "try:\n    raise OSError('undefined symbol: aclFoo')\n"
        "except OSError as e:\n    raise RuntimeError('failed to load') from e",
    )
    assert "OSError: undefined symbol: aclFoo" in only("bad").outcome.reason


def test_root_cause_follows_context_unless_suppressed_and_survives_circles():
    def chain(suppress: bool) -> BaseException:
        try:
            try:
                raise OSError("inner")
            except OSError:
                if suppress:
                    raise RuntimeError("outer") from None
                raise RuntimeError("outer")  # noqa: B904 - the point of the test
        except RuntimeError as error:
            return error

    assert root_cause(chain(suppress=False)) == "OSError: inner"
    assert root_cause(chain(suppress=True)) == "RuntimeError: outer"
    circle, other = RuntimeError("a"), RuntimeError("b")
    circle.__cause__, other.__cause__ = other, circle
    assert root_cause(circle) == "RuntimeError: b"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("accel_missing", "ModuleNotFoundError: No module named 'accel_missing'"),
        ("accel_bad.missing", "ModuleNotFoundError: No module named 'accel_bad.missing'"),
        ("accel_bad:missing", "AttributeError: module 'accel_bad' has no attribute 'missing'"),
        (":missing", "names no module"),
        ("", "names no module"),
        ("accel bad", "ModuleNotFoundError"),
    ],
)
def test_an_entry_point_to_nowhere_is_a_fault(world, value, said):
    world.plugin("bad", declaring(arguments("bad")), value=value or " ")
    fault = only("bad").outcome
    assert said in fault.reason


def test_what_a_plugin_prints_does_not_reach_stdout(world, capfd):
    world.plugin(
        "npu", "print('module')\n" + declaring(arguments("npu")).replace("return", "print('hook'); return")
    )
    assert isinstance(only("npu"), Candidate)
    out, err = capfd.readouterr()
    assert out == ""
    assert "module" in err
    assert "hook" in err


@pytest.mark.parametrize("where", ["module", "hook"])
def test_keyboard_interrupt_passes(world, where):
    source = (
        "raise KeyboardInterrupt"
        if where == "module"
        else declaring().replace("return", "raise KeyboardInterrupt #")
    )
    world.plugin("bad", source)
    with pytest.raises(KeyboardInterrupt):
        discover()


RETURNED = {
    "None": ("None", "accel_backends() returned None (NoneType), expected accel_core.Backend"),
    "text": ("'npu'", "accel_backends() returned 'npu' (str)"),
    "number": ("5", "accel_backends() returned 5 (int)"),
    "dict": ("{'name': 'npu'}", "(dict)"),
    "list of other": (f"[Backend({arguments('npu')}), 'npu']", "accel_backends() returned 'npu' (str)"),
    "empty": ("[]", "accel_backends() returned an empty sequence"),
    "a class": ("Backend", "accel_backends() returned <class"),
}


@pytest.mark.parametrize(("returned", "said"), RETURNED.values(), ids=RETURNED)
def test_a_hook_that_returns_the_wrong_thing_is_an_invalid_declaration(world, returned, said):
    world.plugin("bad", f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return {returned}\n")
    fault = only("bad").outcome
    assert said in fault.reason
    assert fault.hint == "report this to the maintainers of accel-bad"
    assert isinstance(fault.error, InvalidBackendError)


@pytest.mark.parametrize(
    "source",
    ["", "def accel_backends(): return []", f"{plugins.HEAD}\naccel_backends = 3"],
    ids=["none", "unmarked", "no function"],
)
def test_a_plugin_without_a_declaration_says_what_is_expected(world, source):
    world.plugin("bad", source)
    assert (
        "the plugin declares no backend: expected a function accel_backends()" in only("bad").outcome.reason
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (arguments("Bad Name"), "name 'Bad Name' is malformed"),
        (arguments("bad", "high"), "priority 'high' is str, expected int"),
        (arguments("bad", hardware="red"), "hardware 'red' is str, expected Hardware"),
        (arguments("bad", True), "priority True is bool"),
    ],
)
def test_a_bad_declaration_is_a_fault_that_names_it(world, given, said):
    world.plugin("bad", declaring(given))
    fault = only("bad").outcome
    assert said in fault.reason
    assert "report this to the maintainers of accel-bad" in fault.hint


def test_two_distributions_with_one_name_both_come_back(world):
    world.backend("npu", distribution="accel-npu")
    world.backend("npu", distribution="better-npu")
    assert [c.distribution for c in discover() if c.name == "npu"] == ["accel-npu", "better-npu"]
