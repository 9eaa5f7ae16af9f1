"""What a plugin's own hooks say is believed where it fits; the owner alone is asked about his device."""

import sys

import pytest
from accel_tests.asking import judge, names
from accel_tests.plugins import ACCELERATOR, HEAD, arguments, hook

from accel_core import discover
from accel_core.verdict import Status

ASIDE = "ProbeResult(False, 'torch_supa has it', 'a hint', stands_aside=True)"
NONE = "ProbeResult(False, 'nothing on the bus', devices=0)"
WHY = "AttributeError: module 'json' has no attribute 'missing'"
MISSING = f"accelerator='json:missing' of accel-npu 1.0 failed: {WHY}"
COUNTED = "npu_device:Simulated"
#: What `accel_probe` answers, the accelerator, whether it is pinned; the verdict with its reason and devices.
SAID = {
    "it stands aside": (ASIDE, "", False, Status.STANDS_ASIDE, "torch_supa has it", None),
    "no device": (NONE, "", False, Status.NO_DEVICE, "nothing on the bus", 0),
    "no device, pinned": (NONE, "", True, Status.USABLE, "pinned, though nothing on the bus", 0),
    # Else a command would call usable what `get_accelerator()` then fails to build.
    "no device, pinned, cannot be built": (NONE, "json:missing", True, Status.BROKEN, MISSING, None),
    "usable, and never counted": ("ProbeResult(True, devices=8)", COUNTED, False, Status.USABLE, "", 8),
    # It must not make the whole choice fail.
    "usable, cannot be built": ("ProbeResult(True)", "json:missing", False, Status.BROKEN, MISSING, None),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_a_plugins_own_word_on_its_device(torch_world, what):
    answer, accelerator, pinned, status, reason, devices = SAID[what]
    torch_world.module(
        "npu_device", ACCELERATOR.format(count="raise RuntimeError('never asked')")
    )
    fields = {"accelerator": accelerator} if accelerator else {}
    torch_world.backend(
        "npu",
        extra=hook("accel_probe", "backend, others", f"return {answer}"),
        **fields,
    )
    found = judge(pinned=pinned)
    assert found.status is status
    assert found.reason == reason
    assert found.devices == devices
    assert found.status.is_failure is (found.status is Status.BROKEN)
    assert (found.hint == "a hint") is ("a hint" in answer)
    # Without a pin it is asked before anything is imported.
    assert ("torch" in sys.modules) is (
        pinned or "True" in answer.replace("aside=True", "")
    )


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
