"""A signal handler of the program's own that raises while a plugin runs: what it raises is the program's."""

import contextlib
import functools
import os
import signal
import sys
from unittest import mock

import pytest
from accel_tests.asking import counting, vendor
from accel_tests.plugins import hook

import accel_core
from accel_core.errors import AcceleratorFallbackWarning

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")

#: The signal comes while the plugin runs.
HIT = "__import__('os').kill(__import__('os').getpid(), __import__('signal').SIGUSR1)"
WRAPPED = f"""
try:
    {HIT}
except BaseException as error:
    raise ImportError("libacme.so: undefined symbol") from error
"""


class Failed(BaseException): ...


class AsPytest:
    def __call__(self, *_):
        self.fail()

    def fail(self):
        raise Failed("Timeout >1.0s")


def late(*_):
    raise TimeoutError("too late")


#: How a program means its handler, and what it then sees.
HANDLERS = {
    "exits": (lambda *_: sys.exit(3), SystemExit, "3"),
    "deadline": (functools.partial(late, 1), TimeoutError, "too late"),
    "as pytest": (AsPytest(), Failed, r"Timeout >1\.0s"),
}


@pytest.fixture
def handler():
    """Sets the handler of SIGUSR1 for the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("means", HANDLERS)
@pytest.mark.parametrize("where", ["import", "wrapped", "hook", "vendor", "count", "listing"])
def test_the_program_gets_what_its_handler_raised(torch_world, handler, monkeypatch, means, where):
    listed = os.listdir
    if where == "listing":  # importlib.metadata drops it, and takes the folder for empty from then on
        monkeypatch.setattr(os, "listdir", lambda folder: eval(HIT) or listed(folder))
    if where == "vendor":
        vendor(torch_world, HIT)
    elif where == "count":
        counting(torch_world, HIT)
    else:
        sources = {"import": HIT, "wrapped": WRAPPED, "hook": hook("accel_probe", "backend, others", HIT)}
        torch_world.backend("npu", extra=f"\n{sources.get(where, '')}")
    does, kind, said = HANDLERS[means]
    handler(does)
    with pytest.raises(kind, match=f"^{said}$"):
        accel_core.get_accelerator()
    if where == "listing":
        handler(signal.SIG_IGN)
        assert accel_core.get_accelerator().name == "npu"


@pytest.mark.parametrize("means", [signal.SIG_DFL, mock.Mock(), late], ids=["default", "mock", "handled"])
def test_what_no_handler_raised_is_the_plugins_fault(torch_world, handler, means):
    """Two are called "handlers" by what Python shows of them: an enum's lookup is not `SIG_DFL`'s doing.

    The third has raised before, and the program asks for its accelerator while it handles that.
    """
    torch_world.backend("npu", extra="\nimport enum\nclass Card(enum.Enum):\n    A = 1\nCard(5)\n")
    handler(means)
    with contextlib.suppress(TimeoutError):
        try:
            if means is late:
                late()
        finally:
            with pytest.warns(AcceleratorFallbackWarning, match="5 is not a valid Card"):
                assert accel_core.get_accelerator().name == "cpu"
