"""A signal handler of the program's own that raises while a plugin runs: what it raises is the program's."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")

#: The signal comes while the plugin runs.
HIT = "__import__('os').kill(__import__('os').getpid(), __import__('signal').SIGTERM)"
IN_A_HOOK = f"""
@hookimpl
def accel_probe(backend, others):
    {HIT}
"""
WRAPPED = f"""
try:
    {HIT}
except BaseException as error:
    raise ImportError("libacme.so: undefined symbol") from error
"""
COUNTING = f"""
class Card(Accelerator):
    def device_count(self):
        {HIT}
"""
#: How a program means its handler, and what it then sees.
PROGRAM = """
import signal, sys
{handler}
signal.signal(signal.SIGTERM, handler)
import accel_core
try:
    chosen = accel_core.get_accelerator().name
except BaseException as error:
    print(__import__("json").dumps([type(error).__name__, str(error)]))
else:
    print(__import__("json").dumps(chosen))
"""
EXITS = "def handler(*_): sys.exit(3)"
DEADLINE = "def late(*_): raise TimeoutError('too late')\nhandler = __import__('functools').partial(late, 1)"
AS_PYTEST = """
class Failed(BaseException): pass
class Handler:
    def __call__(self, *_): self.fail()
    def fail(self): raise Failed('Timeout >1.0s')
handler = Handler()
"""


@pytest.mark.parametrize(
    ("handler", "seen"),
    [
        (EXITS, ["SystemExit", "3"]),
        (DEADLINE, ["TimeoutError", "too late"]),
        (AS_PYTEST, ["Failed", "Timeout >1.0s"]),
    ],
    ids=["exits", "deadline", "as pytest"],
)
@pytest.mark.parametrize("where", ["import", "wrapped", "hook", "vendor", "count"])
def test_the_program_gets_what_its_handler_raised(torch_world, handler, seen, where):
    fields = {}
    if where == "vendor":
        torch_world.module("acme_sdk", HIT)
        fields["vendor_import"] = "acme_sdk"
    if where == "count":
        torch_world.module("acme_card", f"from accel_core import Accelerator\n{COUNTING}")
        fields["accelerator"] = "acme_card:Card"
    extra = {"import": HIT, "wrapped": WRAPPED, "hook": IN_A_HOOK}.get(where, "")
    torch_world.backend("acme", 900, extra=f"\n{extra}", **fields)
    ended = torch_world.child(PROGRAM.format(handler=handler))
    assert ended.answer == seen, ended.stderr


#: Both are called "handlers" by what Python shows of them: an enum's lookup is not `SIG_DFL`'s doing.
LOOKUP = """
import enum
class Card(enum.Enum):
    A = 1
Card(5)
"""
ANY_ATTRIBUTE = "handler = __import__('unittest.mock').mock.Mock()"


@pytest.mark.parametrize("handler", ["handler = signal.SIG_DFL", ANY_ATTRIBUTE], ids=["default", "mock"])
def test_what_no_handler_raised_is_the_plugins_fault(torch_world, handler):
    torch_world.backend("acme", 900, extra=LOOKUP)
    ended = torch_world.child(PROGRAM.format(handler=handler), strict=False)
    assert ended.answer == "cpu"
    assert "5 is not a valid Card" in ended.stderr
