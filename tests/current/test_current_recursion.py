"""A plugin or a vendor's package that asks for the accelerator while it is being chosen."""

import pytest
from accel_tests.plugins import hook

import accel_core
from accel_core.detection import guard
from accel_core.detection.select import select
from accel_core.errors import BackendUnavailableError, RecursiveChoiceError
from accel_core.settings import read


@pytest.mark.parametrize("asks", ["get_accelerator()", "accelerator('mlu')"])
@pytest.mark.parametrize("where", ["import", "vendor", "accel_probe", "accel_create"])
def test_a_command_says_what_the_program_gets(mlu, where, asks):
    asked, vendor = f"accel_core.{asks}", where == "vendor"
    mlu.module("torch_bad", f"import accel_core; {asked if vendor else ''}")
    said = "" if vendor else asked if where == "import" else hook(where, "backend, others", asked)
    mlu.backend("bad", 900, vendor_import="torch_bad", extra=f"import accel_core\n{said}")
    assert accel_core.get_accelerator().name == "mlu"
    for told in (accel_core.selection(), select(read(), isolated=True).selection):
        (bad,) = [v for v in told.verdicts if v.name == "bad"]
        assert bad.cause.startswith("RecursiveChoiceError: get_accelerator() was called while")
        assert told.chosen == "mlu"


def test_a_pinned_plugin_that_asks_raises_what_happened(mlu, monkeypatch):
    mlu.backend("bad", extra=hook("accel_create", "backend, others", "return accel_core.get_accelerator()"))
    monkeypatch.setenv("DS_ACCELERATOR", "bad")
    with pytest.raises(BackendUnavailableError, match="RecursiveChoiceError") as caught:
        accel_core.get_accelerator()
    assert isinstance(caught.value.__cause__, RecursiveChoiceError)
    assert not guard._choosing


@pytest.mark.parametrize(
    ("second", "kind", "said"),
    [
        (
            "raise OSError('lost')",
            BackendUnavailableError,
            r"flaky \(accel-flaky 1.0\) cannot be built: OSError: l",
        ),
        ("accel_core.get_accelerator()", RecursiveChoiceError, "while the accelerator was being chosen"),
    ],
)
def test_a_build_that_fails_after_its_probe_is_an_error_of_ours(mlu, second, kind, said):
    """It is built once, while it is probed, and fails the next time."""
    mlu.module(
        "flaky_device",
        "import accel_core\ntimes = []\nclass Simulated(accel_core.Accelerator):\n"
        "    def __init__(self, backend):\n        super().__init__(backend)\n        times.append(1)\n"
        f"        if len(times) > 1:\n            {second}\n"
        "    def device_count(self):\n        return 1\n",
    )
    mlu.backend("flaky", 900, accelerator="flaky_device:Simulated")
    with pytest.raises(kind, match=said):
        accel_core.get_accelerator()
    assert not guard._choosing
