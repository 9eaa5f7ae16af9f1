"""accel_core's `TorchAccelerator` on a simulated device, without a plugin: every member is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_testing.on_disk import install_plugin

from accel_simulated import VENDORS

pytestmark = pytest.mark.slow


def test_every_member(simulated: Callable[..., Any]) -> None:
    """Exact answers, on the device that no plugin knows; every device's promises are in `test_cards.py`."""
    answers = simulated("acme", "simulated_checks.interface:of_torch_accelerator", "acme", timeout=300).answer
    assert len(answers) > 90
    assert {member: problem for member, problem in answers.items() if problem} == {}


def test_through_a_plugin(tmp_path: Path, simulated: Callable[..., Any]) -> None:
    """The same members of what accel_core finds, probes and builds; plugins' own tests do this too."""
    pin = install_plugin(tmp_path, VENDORS["mlu"])
    answers = simulated("mlu", "simulated_checks.interface:of_plugin", pin, path=[tmp_path]).answer
    assert {member: problem for member, problem in answers.items() if problem} == {}
