"""What a plugin's own hooks say is believed where it fits; the owner alone is asked about his device."""

import os
import sys

import pytest
from accel_tests import plugins
from accel_tests.asking import counting, judge, names, vendor
from accel_tests.plugins import arguments, hook

from accel_core.backend import InTorch
from accel_core.detection import Status
from accel_core.detection.select import discover

ASIDE = "ProbeResult(False, 'torch_supa has it', 'a hint', stands_aside=True)"
NONE = "ProbeResult(False, 'nothing on the bus', devices=0)"
WHY = "AttributeError: module 'json' has no attribute 'missing'"
LACKS = f"accelerator='json:missing' of accel-npu 1.0 failed: {WHY}"
COUNTED = "npu_device:Simulated"
#: What `accel_probe` answers, the accelerator, whether it is pinned; the verdict with its reason and devices.
SAID = {
    "it stands aside": (ASIDE, "", False, Status.STANDS_ASIDE, "torch_supa has it", None),
    "no device": (NONE, "", False, Status.NO_DEVICE, "nothing on the bus", 0),
    "no device, pinned": (NONE, "", True, Status.USABLE, "pinned, though nothing on the bus", 0),
    # Else a command would call usable what `get_accelerator()` then fails to build.
    "no device, pinned, cannot be built": (NONE, "json:missing", True, Status.BROKEN, LACKS, None),
    "usable, and never counted": ("ProbeResult(True, devices=8)", COUNTED, False, Status.USABLE, "", 8),
    # USERS 17: it must not take the whole choice down.
    "usable, cannot be built": ("ProbeResult(True)", "json:missing", False, Status.BROKEN, LACKS, None),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_a_plugins_own_word_on_its_device(torch_world, what):
    answer, accelerator, pinned, *verdict = SAID[what]
    torch_world.module("npu_device", plugins.ACCELERATOR.format(count="raise RuntimeError('never asked')"))
    fields = {"accelerator": accelerator} if accelerator else {}
    torch_world.backend("npu", extra=hook("accel_probe", "backend, others", f"return {answer}"), **fields)
    found = judge(pinned=pinned)
    assert [found.status, found.reason, found.devices] == verdict
    assert found.status.is_failure is (found.status is Status.BROKEN)
    assert (found.hint == "a hint") is ("a hint" in answer)
    # Without a pin it is asked before anything is imported.
    assert ("torch" in sys.modules) is (pinned or "True" in answer.replace("aside=True", ""))


def test_the_other_backends_are_shown_to_the_probe(torch_world):
    torch_world.backend("mlu")
    body = "return ProbeResult(False, ','.join(sorted(b.name for b in others)))"
    torch_world.backend("npu", extra=hook("accel_probe", "backend, others", body))
    assert judge().reason == "cpu,generic,mlu"


#: The same hook under a name of its own, which pluggy takes by its marker.
NAMED = "\n@hookimpl(specname={hook!r})\ndef somehow(backend, others):\n    {body}\n"


@pytest.mark.parametrize("own", ["npu", "mlu"])
@pytest.mark.parametrize("named", [False, True], ids=["by name", "specname"])
@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("accel_probe", "return ProbeResult(False, '{0} judged ' + backend.name)", "{0} judged {0}"),
        (
            "accel_create", "raise RuntimeError('{0} built ' + backend.name)",
            "accel_create() of accel-{0} 1.0 failed: RuntimeError: {0} built {0}",
        ),
    ],
    ids=["accel_probe", "accel_create"],
)  # fmt: skip
def test_the_owner_alone_is_asked_about_his_device(torch_world, own, named, name, body, reason):
    for each, priority in (("npu", 700), ("mlu", 300)):
        body_of = body.format(each)
        source = NAMED.format(hook=name, body=body_of) if named else hook(name, "backend, others", body_of)
        torch_world.backend(each, priority, extra=source)
    assert judge(own).reason == reason.format(own)


def test_a_declaration_under_another_name_is_read(torch_world):
    named = "@hookimpl(specname='accel_backends')\ndef what_we_have():\n"
    torch_world.plugin("acme", f"{plugins.HEAD}{named}    return Backend({arguments('acme')})\n")
    assert "acme" in names(discover())
    assert judge("acme").usable


# ---------------------------------------------------------------------------- everybody about an error

FAILS = "raise ImportError('libfoo.so: cannot open shared object file')"


def explaining(world, name, body, parameters="backend, error", **fields):
    world.backend(name, extra=hook("accel_explain", parameters, body), **fields)


BAD = ("raise ValueError", "import sys; sys.exit(3)", "return 5", "return ''")


@pytest.mark.parametrize(
    ("body", "parameters"),
    [*((body, "backend, error") for body in BAD), ("return 'never'", "backend, flavour")],
)
def test_one_that_fails_answers_nonsense_or_does_not_fit_is_passed_over(torch_world, body, parameters):
    vendor(torch_world, FAILS)
    explaining(torch_world, "sdaa", body, parameters, priority=900)
    explaining(torch_world, "mlu", "return f'{backend.name}: {error}'", priority=300)
    assert judge().hint == "npu: libfoo.so: cannot open shared object file"


def test_the_owner_first_then_its_declaration_then_others(torch_world):
    explaining(torch_world, "mlu", "return 'from mlu'", priority=900)
    own = hook("accel_explain", "backend, error", "return 'own' if 'libfoo' in str(error) else None")
    vendor(torch_world, FAILS, extra=own, hints=(("libfoo", "data"), ("LIB(BAR|BAZ)", "more data")))
    assert judge().hint == "own"
    for error, hint in (("libbar.so", "more data"), ("another one", "from mlu")):
        torch_world.module("torch_npu", f"raise ImportError({error!r})")
        assert judge().hint == hint
    for number in range(19):  # each that failed would import all, were their number not bounded
        torch_world.backend(f"more{number}", 950)
    assert judge().hint != "from mlu"


# ---------------------------------------------------------------------------- counting starts the runtime

#: The runtime refuses every process that was forked from one that has counted.
STARTS = """
        import os
        if os.environ.get("RUNTIME") not in (None, str(os.getpid())):
            raise RuntimeError("cannot re-initialise the runtime in a forked subprocess")
        os.environ["RUNTIME"] = str(os.getpid())
        return 3"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_device_whose_count_starts_its_runtime_is_counted_in_a_child(torch_world, monkeypatch):
    monkeypatch.delenv("RUNTIME", raising=False)
    counting(torch_world, STARTS, in_torch=InTorch(in_child="count"))
    found = judge()
    assert (found.status, found.devices) == (Status.USABLE, 3)
    assert "torch" in sys.modules, "the accelerator was built here"
    assert "RUNTIME" not in os.environ


def test_without_the_declaration_it_is_counted_here(torch_world, monkeypatch):
    monkeypatch.setenv("RUNTIME", str(os.getpid()))
    counting(torch_world, STARTS)
    assert judge().devices == 3
