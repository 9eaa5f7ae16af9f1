"""A device that only torch knows is chosen where no plugin claims it."""

import sys

import pytest
from accel_tests import layouts
from accel_tests.asking import chosen, statuses
from accel_tests.plugins import NO_DEVICE

import accel_core
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import Status


def announce(world, source, name="foo"):
    world.module(f"torch_{name}", source)
    world.distribution(
        f"torch-{name}", "1.0", {"torch.backends": {name: f"torch_{name}:autoload"}}
    )


BRINGS = """
import torch, types
def autoload():
    torch.foo = types.ModuleType("torch.foo")
    torch.foo.device_count = lambda: 3
    torch.accelerator.current = "foo"
"""


@pytest.mark.parametrize("pin", ["", "foo", "generic"])
def test_a_device_that_only_torch_knows_is_generic(torch_world, monkeypatch, pin):
    announce(torch_world, BRINGS)
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    acc = accel_core.get_accelerator()
    assert acc.name == "generic"
    assert acc.device_name() == "foo"
    assert acc.device_count() == 3
    reasons = [str(verdict) for verdict in accel_core.selection().verdicts]
    assert any(
        "torch-foo 1.0 registers 'foo' with torch, and counts 3" in reason
        for reason in reasons
    )


def test_what_registers_a_device_and_counts_none_is_named(torch_world):
    """As torch_musa without its driver (MooreThreads/torch_musa#50)."""
    none = "\n    torch._C.private_use1, torch.ones = 'foo', lambda *_, **__: torch.lost()\n"
    lost = "def lost(): raise RuntimeError('no device')\ntorch.lost = lost\n"
    announce(torch_world, BRINGS.replace("3", "0").rstrip() + none + lost)
    told = select(read()).verdicts[1]
    assert told.name == "generic"
    assert told.status is Status.NO_DEVICE
    assert (
        told.reason == "torch-foo 1.0 registers 'foo' with torch, but counts no device"
    )
    assert told.hint.startswith("run the vendor's tool")


@pytest.mark.parametrize("pin", ["bar", "foo@other", "npu"])
def test_a_pin_to_another_name_does_not_find_the_generic_device(
    torch_world, monkeypatch, pin
):
    """A package whose plugin we have is left to it: it only has to be installed."""
    announce(torch_world, BRINGS)
    announce(torch_world, BRINGS, "npu")
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    with pytest.raises(accel_core.BackendNotFoundError):
        accel_core.get_accelerator()


def test_a_broken_announcement_leaves_the_next_its_turn(torch_world):
    announce(torch_world, BRINGS)
    first = (
        torch_world.root / "first"
    )  # on the path, so that the broken one comes first
    layouts.dist_info(
        first, "torch-aaa", "1.0", {"torch.backends": {"aaa": "torch_aaa:autoload"}}
    )
    torch_world.module("torch_aaa", "import sys; sys.exit(1)")
    torch_world.set_path([first, torch_world.site])
    assert accel_core.get_accelerator().name == "generic"


#: The same of a package without an entry point: importing it is all that it takes.
BRINGS_AT_IMPORT = f"{BRINGS}\nautoload()\n"


@pytest.mark.parametrize("isolated", [False, True])
def test_a_package_that_announces_nothing_can_be_named(
    torch_world, monkeypatch, isolated
):
    """`accel --import` sets it, for the children that try the device."""
    torch_world.module("torch_foo", BRINGS_AT_IMPORT)
    monkeypatch.setenv("ACCEL_IMPORT", " torch_foo ,")
    found = select(read(), isolated=isolated)
    assert found.name == "generic"
    assert found.verdicts[0].devices == 3
    assert ("torch_foo" in sys.modules) is not isolated


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise OSError('libfoo.so')", "OSError: libfoo.so"),
        (
            "raise SystemExit(3)",
            "SystemExit: the code tried to exit the process with 3",
        ),
    ],
    ids=["raises", "exits"],
)
def test_a_package_that_is_named_and_fails_is_named_in_the_verdict(
    torch_world, monkeypatch, source, told
):
    torch_world.module("torch_foo", source)
    monkeypatch.setenv("ACCEL_IMPORT", "torch_foo")
    generic = select(read(), isolated=True).verdicts[0]
    assert generic.status is Status.BROKEN
    assert (
        generic.reason
        == f"torch_foo, which ACCEL_IMPORT lists, fails to import: {told}"
    )
    assert generic.hint == "remove torch_foo from ACCEL_IMPORT"


def test_a_package_that_a_plugin_claims_is_left_to_the_plugin(torch_world):
    announce(torch_world, "raise SystemExit('imported')")
    torch_world.backend("foo", vendor_import="torch_foo", extra=NO_DEVICE)
    found = chosen()
    assert statuses(found) == {
        "foo": "no_device",
        "generic": "no_device",
        "cpu": "usable",
    }
    assert (
        found.verdicts[1].reason
        == "torch 2.99.0+simulated (CPU build) has no accelerator of its own; the "
        "packages that add one belong to other backends (torch-foo: foo)"
    )
    assert "torch_foo" not in sys.modules


def test_a_device_that_a_plugin_claims_is_left_to_the_plugin(
    torch_world, simulated_torch
):
    torch_world.backend("mlu", extra=NO_DEVICE)
    simulated_torch.accelerator.current = "mlu"
    found = chosen()
    assert statuses(found)["generic"] == "deferred"
    assert found.verdicts[1].reason == "torch's accelerator is mlu, which mlu declares"


def test_torch_without_an_accelerator_is_no_device(torch_world, simulated_torch):
    found = chosen()
    assert found.verdicts[0].reason == "torch reports no accelerator"
    assert found.verdicts[0].status is Status.NO_DEVICE


def test_a_torch_built_for_what_a_plugin_claims_stands_aside_unimported(world):
    world.module("torch.__init__", "raise SystemExit('imported')")
    world.module("torch.version", "__version__ = '2.9'\ncuda = '12.8'\n")
    world.backend("cuda", extra=NO_DEVICE)
    found = chosen()
    generic = found.verdicts[1]
    assert generic.name == "generic"
    assert generic.status is Status.DEFERRED
    assert generic.reason == "an installed plugin declares cuda"


def test_a_torch_built_for_something_nobody_claims_is_asked(world):
    world.module("torch.__init__", "raise RuntimeError('imported')")
    world.module("torch.version", "__version__ = '2.9'\nxpu = '2025'\n")
    found = chosen()
    assert found.verdicts[0].status is Status.BROKEN
    assert "RuntimeError: imported" in found.verdicts[0].reason


def test_what_nobody_claims_is_tried_in_a_child_where_probes_are_isolated(torch_world):
    """It may end the process, as it would by torch's own autoload."""
    announce(torch_world, "def autoload():\n    import os\n    os._exit(3)\n")
    found = chosen(ACCEL_PROBE="isolated")
    assert found.name == "cpu"
    assert found.verdicts[1].status is Status.CRASHED
    assert "torch_foo" not in sys.modules
