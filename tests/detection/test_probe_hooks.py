"""What a plugin's own hooks say is believed where it fits, and is a verdict where it does not."""

from __future__ import annotations

import json
import sys

import pytest
from accel_tests import plugins
from accel_tests.asking import judge
from accel_tests.plugins import hook

from accel_core.detection import Status


def answering(world, body: str, **fields: object) -> None:
    world.backend("npu", extra=hook("accel_probe", "backend, others", body), **fields)


def test_a_plugin_may_say_that_it_stands_aside_or_has_no_device(torch_world):
    answering(torch_world, "return ProbeResult(False, 'torch_supa has it', 'a hint', stands_aside=True)")
    found = judge()
    assert (found.status, found.reason, found.hint) == (Status.STANDS_ASIDE, "torch_supa has it", "a hint")
    assert not found.status.is_failure
    assert "torch" not in sys.modules


def test_a_plugin_may_say_that_there_is_no_device(torch_world):
    answering(torch_world, "return ProbeResult(False, 'nothing on the bus', devices=0)")
    assert judge().status is Status.NO_DEVICE
    assert "torch" not in sys.modules
    assert judge(pinned=True).usable


def test_a_pin_forgives_a_missing_device_and_not_an_accelerator_that_cannot_be_built(torch_world):
    """Else a command would call usable what `get_accelerator()` then fails to build."""
    answering(
        torch_world, "return ProbeResult(False, 'nothing on the bus', devices=0)", accelerator="json:missing"
    )
    assert judge(pinned=True).status is Status.BROKEN


def test_a_plugin_may_say_that_it_is_usable_and_is_believed_about_its_devices(torch_world):
    torch_world.module("npu_device", plugins.ACCELERATOR.format(count="raise RuntimeError('never asked')"))
    answering(torch_world, "return ProbeResult(True, devices=8)", accelerator="npu_device:Simulated")
    found = judge()
    assert (found.status, found.devices) == (Status.USABLE, 8)


def test_a_plugin_that_says_usable_and_cannot_be_built_is_broken(torch_world):
    """USERS 17: it must not take the whole choice down."""
    answering(torch_world, "return ProbeResult(True)", accelerator="json:missing")
    found = judge()
    assert (found.status, found.cause) == (
        Status.BROKEN,
        "AttributeError: module 'json' has no attribute 'missing'",
    )


def test_the_other_backends_are_shown_to_the_probe(torch_world):
    torch_world.backend("mlu")
    answering(torch_world, "return ProbeResult(False, ','.join(sorted(b.name for b in others)))")
    assert judge().reason == "cpu,generic,mlu"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return None", Status.USABLE, ""),
        (
            "return True",
            Status.INVALID,
            "accel_probe() returned True (bool), expected accel_core.ProbeResult or None",
        ),
        ("return 'yes'", Status.INVALID, "accel_probe() returned 'yes' (str)"),
        ("return ProbeResult('yes')", Status.INVALID, "ProbeResult(usable='yes'"),
        ("return ProbeResult(True, devices='2')", Status.INVALID, "devices='2'"),
        ("return ProbeResult(True, devices=-1)", Status.INVALID, "devices=-1"),
        ("return ProbeResult(False, ValueError('x'))", Status.INVALID, "reason=ValueError('x')"),
        ("raise OSError('no driver')", Status.BROKEN, "OSError: no driver"),
        ("import sys; sys.exit(2)", Status.BROKEN, "SystemExit: it tried to end the process with 2"),
    ],
)
def test_a_probe_that_misbehaves_is_a_verdict(torch_world, body, status, said):
    answering(torch_world, body)
    found = judge()
    assert found.status is status
    assert said in found.reason
    if found.status is Status.BROKEN:
        assert found.reason == f"accel_probe() of accel-npu 1.0 failed: {said}"
    if found.status is not Status.USABLE:
        assert found.hint == "report this to the maintainers of accel-npu"
    json.dumps(found.to_dict())


def test_a_probe_that_prints_does_not_reach_stdout(torch_world, capsys):
    answering(torch_world, "print('chatter'); return None")
    assert judge().usable
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "chatter" in captured.err


def creating(world, body: str) -> None:
    world.backend("npu", extra=hook("accel_create", "backend, others", body))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (
            "return 5",
            Status.INVALID,
            (
                "npu (accel-npu 1.0) built 5 (int), expected an accel_core.Accelerator, "
                "or an object or class that an adapter knows (DeepSpeed's DeepSpeedAccelerator)"
            ),
        ),
        (
            "raise RuntimeError('no driver')",
            Status.BROKEN,
            "accel_create() of accel-npu 1.0 failed: RuntimeError: no driver",
        ),
        ("raise accel_core.BackendUnavailableError('busy')", Status.BROKEN, "busy"),
        ("raise accel_core.DeclinedError('no such card', hint='buy one')", Status.NO_DEVICE, "no such card"),
        (
            "raise accel_core.DeclinedError('cuda has it', stands_aside=True)",
            Status.STANDS_ASIDE,
            "cuda has it",
        ),
    ],
)
def test_a_creation_that_misbehaves_is_a_verdict(torch_world, body, status, said):
    creating(torch_world, body)
    found = judge()
    assert (found.status, found.reason) == (status, said)
    if "accel_core." in body:  # what a plugin says in our words is its answer
        assert found.hint == ("buy one" if "hint" in body else "")
    else:
        assert found.hint == "report this to the maintainers of accel-npu"


@pytest.mark.parametrize(
    ("accelerator", "status", "said"),
    [
        ("missing_module:X", Status.BROKEN, " failed: ModuleNotFoundError: No module named 'missing_module'"),
        ("json:missing", Status.BROKEN, " failed: AttributeError"),
        ("json:dumps", Status.INVALID, "expected a class"),
        ("json:JSONDecoder", Status.BROKEN, " failed: TypeError"),
    ],
)
def test_a_class_that_cannot_be_built_is_a_verdict(torch_world, accelerator, status, said):
    """The plugin's field is to blame, and not the vendor's package."""
    torch_world.backend("npu", accelerator=accelerator)
    found = judge()
    assert found.status is status
    assert found.reason.startswith(f"accelerator={accelerator!r} of accel-npu 1.0 ")
    assert said in found.reason
    assert found.hint == "report this to the maintainers of accel-npu"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (hook("accel_probe", "backend, flavour", "return None"), "flavour"),
        (hook("accel_future", "backend", "return None"), "unknown hook 'accel_future'"),
    ],
    ids=["unknown parameter", "unknown hook"],
)
def test_a_hook_that_does_not_fit_is_invalid_and_hides_nobody(torch_world, extra, said):
    torch_world.backend("npu", extra=extra)
    torch_world.backend("mlu")
    found = judge()
    assert found.status is Status.INVALID
    assert found.reason.startswith("a hook does not fit: PluginValidationError")
    assert said in found.reason
    assert found.hint == "pip install --upgrade accel-npu accel-core"
    assert judge("mlu").usable
