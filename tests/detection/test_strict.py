"""ACCEL_STRICT refuses the CPU where an accelerator was meant."""

import pytest
from accel_tests.asking import chosen, error
from accel_tests.plugins import NO_DEVICE

from accel_core.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
)
from accel_core.hardware import bus, vendors

NOT_FOUND, UNAVAILABLE = BackendNotFoundError, BackendUnavailableError


NVIDIA = vendors.Vendor(
    "NVIDIA GPU", "cuda", evidence=bus.Evidence(nodes=("/dev/nvidia0",))
)
CARD = bus.Evidence(nodes=("/dev/davinci0",))


@pytest.fixture
def card(torch_world, monkeypatch):
    """A machine with npu's card."""
    monkeypatch.setattr(
        bus,
        "evidence",
        lambda backend, root="/": CARD if backend.name == "npu" else None,
    )
    return torch_world


def test_strict_refuses_the_cpu_where_a_plugin_is_broken(torch_world):
    """A job for a GPU must not run on the CPU because a plugin fails to load."""
    torch_world.plugin("npu", "raise ImportError('libfoo')")
    found = error(ACCEL_STRICT="1")
    assert str(found).startswith(
        "ACCEL_STRICT=1 forbids the CPU fallback, and no accelerator is usable:"
    )
    assert "libfoo" in str(found)
    assert chosen(ACCEL_STRICT="0").name == "cpu"
    assert chosen(ACCEL_STRICT="1", DS_ACCELERATOR="cpu").name == "cpu"


def test_strict_refuses_the_cpu_where_hardware_is_there(torch_world, monkeypatch):
    torch_world.backend("npu", extra=NO_DEVICE)
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    monkeypatch.setattr(vendors, "known_hardware", lambda: (NVIDIA,))
    assert "NVIDIA GPU is present (/dev/nvidia0)" in str(error(ACCEL_STRICT="1"))
    monkeypatch.setattr(vendors, "known_hardware", lambda: ())
    monkeypatch.setattr(bus, "evidence", lambda backend, root="/": CARD)
    assert isinstance(error(ACCEL_STRICT="1"), UNAVAILABLE)


def test_strict_refuses_the_cpu_where_two_distributions_claim_hardware_that_is_there(
    card,
):
    card.backend("npu", 700, distribution="accel-npu")
    card.backend("npu", 600, distribution="better-npu")
    found = error(ACCEL_STRICT="1")
    assert "npu (accel-npu 1.0): conflict: better-npu 1.0 declares npu too" in str(
        found
    )
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="@better-npu").name == "npu"


def test_strict_has_nothing_against_what_the_user_ruled_out(card):
    card.backend("npu", extra=NO_DEVICE)
    assert isinstance(error(ACCEL_STRICT="1"), UNAVAILABLE)
    assert chosen(ACCEL_STRICT="1", ACCEL_BLOCK="npu").name == "cpu"


def test_a_machine_without_accelerators_is_refused_the_cpu_always_only(torch_world):
    """A job that a scheduler put on a node without devices must not train on the CPU."""
    assert chosen(ACCEL_STRICT="1").name == "cpu"
    found = error(ACCEL_STRICT="always")
    assert isinstance(found, UNAVAILABLE)
    assert str(found).startswith(
        "ACCEL_STRICT=always forbids the CPU fallback, and no accelerator is usable:\n"
        "  no plugin for an accelerator is installed\n"
        "Install the plugin for your accelerator, or set DS_ACCELERATOR=cpu"
    )
    assert chosen(ACCEL_STRICT="always", DS_ACCELERATOR="cpu").name == "cpu"
