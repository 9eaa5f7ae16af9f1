"""A plugin or a vendor's package that asks for the accelerator while it is being chosen."""

from __future__ import annotations

import pytest
from accel_tests.plugins import hook

import accel_core
from accel_core import current
from accel_core.errors import BackendUnavailableError, RecursiveChoiceError

ASKS = "import accel_core; accel_core.get_accelerator()"


def test_a_plugin_that_asks_while_it_is_loaded_is_broken(mlu):
    mlu.plugin("bad", ASKS)
    assert accel_core.get_accelerator().name == "mlu"
    (bad,) = [v for v in accel_core.selection().verdicts if v.name == "bad"]
    assert bad.cause.startswith(
        "RecursiveChoiceError: get_accelerator() was called while the accelerator was being chosen"
    )


def test_a_vendor_that_asks_while_it_is_imported_is_broken(mlu):
    mlu.module("torch_bad", ASKS)
    mlu.backend("bad", 900, vendor_import="torch_bad")
    assert accel_core.get_accelerator().name == "mlu"
    assert "RecursiveChoiceError" in accel_core.selection().verdicts[0].reason


@pytest.mark.parametrize("usable", ["True", "None"])
def test_a_plugin_that_asks_while_it_builds_is_broken_and_the_next_is_chosen(mlu, usable):
    answer = "return ProbeResult(True)" if usable == "True" else "return None"
    extra = hook("accel_probe", "backend, others", answer) + hook(
        "accel_create", "backend, others", "return accel_core.get_accelerator()"
    )
    mlu.backend("bad", 900, extra=extra)
    assert accel_core.get_accelerator().name == "mlu"


def test_a_pinned_plugin_that_asks_raises_what_happened(mlu, monkeypatch):
    mlu.backend("bad", extra=hook("accel_create", "backend, others", "return accel_core.get_accelerator()"))
    monkeypatch.setenv("DS_ACCELERATOR", "bad")
    with pytest.raises(BackendUnavailableError, match="RecursiveChoiceError") as caught:
        accel_core.get_accelerator()
    assert isinstance(caught.value.__cause__, RecursiveChoiceError)
    assert not current._choosing


def _flaky(world, second):
    """An accelerator that is built once, while it is probed, and does `second` the next time."""
    world.module(
        "flaky_device",
        "import accel_core\ntimes = []\nclass Simulated(accel_core.Accelerator):\n"
        "    def __init__(self, backend):\n        super().__init__(backend)\n        times.append(1)\n"
        f"        if len(times) > 1:\n            {second}\n"
        "    def device_count(self):\n        return 1\n",
    )
    world.backend("flaky", 900, accelerator="flaky_device:Simulated")


def test_a_build_that_fails_after_its_probe_is_an_error_of_ours(mlu):
    _flaky(mlu, "raise OSError('device lost')")
    with pytest.raises(
        BackendUnavailableError, match=r"flaky \(accel-flaky 1.0\) cannot be built: OSError: device lost"
    ):
        accel_core.get_accelerator()


def test_a_build_that_asks_after_its_probe_is_told_so(mlu):
    _flaky(mlu, "accel_core.get_accelerator()")
    with pytest.raises(RecursiveChoiceError):
        accel_core.get_accelerator()
    assert not current._choosing
