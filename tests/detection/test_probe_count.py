"""A device whose count starts its runtime, after which the process cannot fork."""

from __future__ import annotations

import sys

import pytest
from accel_tests.asking import counting, judge

from accel_core.backend import InTorch
from accel_core.detection import Status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

#: The runtime is started by counting, and refuses every process that was forked from one that did.
STARTS = """
        import os
        if os.environ.get("RUNTIME") not in (None, str(os.getpid())):
            raise RuntimeError("cannot re-initialise the runtime in a forked subprocess")
        os.environ["RUNTIME"] = str(os.getpid())
        return 3"""


def test_it_is_counted_in_a_child_and_a_fork_can_use_it(torch_world, monkeypatch):
    monkeypatch.delenv("RUNTIME", raising=False)
    counting(torch_world, STARTS, in_torch=InTorch(in_child="count"))
    found = judge()
    assert (found.status, found.devices) == (Status.USABLE, 3)
    assert "torch" in sys.modules, "the accelerator was built here"
    import os

    assert "RUNTIME" not in os.environ


def test_without_the_declaration_it_is_counted_here(torch_world, monkeypatch):
    import os

    monkeypatch.setenv("RUNTIME", str(os.getpid()))
    counting(torch_world, STARTS)
    assert judge().devices == 3


def test_a_child_that_finds_none_leaves_the_next_its_turn(torch_world):
    counting(torch_world, "return 0", in_torch=InTorch(in_child="count"))
    assert judge().status is Status.NO_DEVICE
