"""What a plugin's own hooks say is believed where it fits; the owner alone is asked about his device."""

import sys
from typing import NamedTuple

import pytest
from accel_tests.asking import judge, names
from accel_tests.plugins import ACCELERATOR, HEAD, arguments, hook

from accel_core import discover
from accel_core.verdict import Status

ASIDE = "ProbeResult(False, 'torch_supa has it', 'a hint', deferred=True)"
NONE = "ProbeResult(False, 'nothing on the bus', devices=0)"
WHY = "AttributeError: module 'json' has no attribute 'missing'"
MISSING = f"accelerator='json:missing' of accel-npu 1.0 failed: {WHY}"
COUNTED = "npu_device:Simulated"


class Word(NamedTuple):
    """What a plugin's `accel_probe` answers, and the verdict on its backend."""

    answer: str
    status: Status
    reason: str = ""
    devices: int | None = None
    accelerator: str = ""
    pinned: bool = False


WORDS = {
    "it defers": Word(ASIDE, Status.DEFERRED, "torch_supa has it"),
    "no device": Word(NONE, Status.NO_DEVICE, "nothing on the bus", devices=0),
    "no device, pinned": Word(
        NONE,
        Status.USABLE,
        "pinned, though nothing on the bus",
        devices=0,
        pinned=True,
    ),
    # Else a command would call usable what `get_accelerator()` then fails to build.
    "no device, pinned, cannot be built": Word(
        NONE, Status.BROKEN, MISSING, accelerator="json:missing", pinned=True
    ),
    "usable, and never counted": Word(
        "ProbeResult(True, devices=8)", Status.USABLE, devices=8, accelerator=COUNTED
    ),
    # It must not make the whole choice fail.
    "usable, cannot be built": Word(
        "ProbeResult(True)", Status.BROKEN, MISSING, accelerator="json:missing"
    ),
}


@pytest.mark.parametrize("what", WORDS)
def test_a_plugins_own_word_on_its_device(torch_world, what):
    case = WORDS[what]
    torch_world.module(
        "npu_device", ACCELERATOR.format(count="raise RuntimeError('never asked')")
    )
    fields = {"accelerator": case.accelerator} if case.accelerator else {}
    torch_world.backend(
        "npu",
        extra=hook("accel_probe", "backend, others", f"return {case.answer}"),
        **fields,
    )
    found = judge(pinned=case.pinned)
    assert found.status is case.status
    assert found.reason == case.reason
    assert found.devices == case.devices
    assert found.status.is_failure is (case.status is Status.BROKEN)
    assert (found.hint == "a hint") is (case.answer == ASIDE)
    # Without a pin it is asked before anything is imported.
    says_usable = case.answer.startswith("ProbeResult(True")
    assert ("torch" in sys.modules) is (case.pinned or says_usable)


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
def test_the_owner_alone_is_asked_about_his_device(
    torch_world, own, named, name, body, reason
):
    for each, priority in (("npu", 700), ("mlu", 300)):
        body_of = body.format(each)
        source = (
            NAMED.format(hook=name, body=body_of)
            if named
            else hook(name, "backend, others", body_of)
        )
        torch_world.backend(each, priority, extra=source)
    assert judge(own).reason == reason.format(own)


def test_a_declaration_under_another_name_is_read(torch_world):
    named = "@hookimpl(specname='accel_backends')\ndef what_we_have():\n"
    torch_world.plugin(
        "acme", f"{HEAD}{named}    return Backend({arguments('acme')})\n"
    )
    assert "acme" in names(discover())
    assert judge("acme").usable
