"""A plugin or a vendor's package that asks for the accelerator while it is being chosen."""

import sys

import pytest
from accel_tests.plugins import hook

import accel_core
from accel_core.errors import (
    BackendUnavailableError,
    RecursiveChoiceError,
)
from accel_core.sandbox import guard
from accel_core.select import select
from accel_core.settings import read


@pytest.mark.parametrize("asks", ["get_accelerator()", "accelerator('mlu')"])
@pytest.mark.parametrize("where", ["import", "vendor", "accel_probe", "accel_create"])
def test_a_command_says_what_the_program_gets(mlu, where, asks):
    asked, vendor = f"accel_core.{asks}", where == "vendor"
    mlu.module("torch_bad", f"import accel_core; {asked if vendor else ''}")
    said = (
        ""
        if vendor
        else asked
        if where == "import"
        else hook(where, "backend, others", asked)
    )
    mlu.backend(
        "bad", 900, vendor_import="torch_bad", extra=f"import accel_core\n{said}"
    )
    assert accel_core.get_accelerator().name == "mlu"
    for told in (accel_core.selection(), select(read(), isolated=True)):
        (bad,) = [v for v in told.verdicts if v.name == "bad"]
        assert bad.cause.startswith(
            "RecursiveChoiceError: get_accelerator() was called while"
        )
        assert told.name == "mlu"


def test_a_pinned_plugin_that_asks_raises_what_happened(mlu, monkeypatch):
    mlu.backend(
        "bad",
        extra=hook(
            "accel_create", "backend, others", "return accel_core.get_accelerator()"
        ),
    )
    monkeypatch.setenv("DS_ACCELERATOR", "bad")
    with pytest.raises(BackendUnavailableError, match="RecursiveChoiceError") as caught:
        accel_core.get_accelerator()
    assert isinstance(caught.value.__cause__, RecursiveChoiceError)
    assert not guard._selecting_pid


COUNTS_BUILDS = """
import accel_core
class Simulated(accel_core.Accelerator):
    built = 0
    def __init__(self, backend):
        super().__init__(backend)
        Simulated.built += 1
    def device_count(self):
        return {count}
"""


def built():
    return sys.modules["card_device"].Simulated.built


@pytest.mark.parametrize("pin", ["", "card"])
def test_the_accelerator_that_the_probe_built_is_the_one_that_is_kept(
    mlu, monkeypatch, pin
):
    mlu.module("card_device", COUNTS_BUILDS.format(count=1))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    found = accel_core.get_accelerator()
    assert accel_core.accelerator("card") is found
    assert accel_core.accelerator("card@accel-card") is found
    assert built() == 1


def test_a_pin_that_is_honoured_without_a_device_builds_once(mlu, monkeypatch):
    mlu.module("card_device", COUNTS_BUILDS.format(count=0))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("DS_ACCELERATOR", "card")
    assert accel_core.get_accelerator().name == "card"
    assert built() == 1


def test_an_isolated_choice_builds_once_in_this_process(mlu, monkeypatch):
    """Its probe builds another in a child process."""
    mlu.module("card_device", COUNTS_BUILDS.format(count=1))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert accel_core.get_accelerator().name == "card"
    assert built() == 1


def test_accel_create_is_called_once(mlu):
    body = "accel_core.times = getattr(accel_core, 'times', 0) + 1"
    mlu.backend("card", 900, extra=hook("accel_create", "backend, others", body))
    try:
        assert accel_core.get_accelerator().name == "card"
        assert accel_core.times == 1
    finally:
        del accel_core.times
