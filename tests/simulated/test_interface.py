"""accel_core's `TorchAccelerator` on each simulated device, without a plugin: every member is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_testing.on_disk import install_plugin

from accel_simulated import OWN_DEVICES, VENDORS

pytestmark = pytest.mark.slow

#: What `TorchAccelerator` alone cannot do, and words of the reason: work for the vendor's plugin, or
#: something that the vendor has not.
BEYOND = {
    "hpu": {
        "fork_rng": "device 0 only",
        "get_rng_state": "device 0 only",
        "memory_stats": "allocated_bytes",
        "set_per_process_memory_fraction": "not supported",
    },
    "sdaa": {"set_per_process_memory_fraction": "not supported"},
    "mps": {
        "default_generator": "not supported",
        "initial_seed": "not supported",
        "manual_seed_all": "not supported",
        # What Metal has not: float64, page-locked memory, graphs.
        "DoubleTensor": "float64",
        **dict.fromkeys(("pin_memory", "pin_empty", "pin_empty_like", "is_pinned"), "gave False"),
        **dict.fromkeys(("supports_graphs", "create_graph", "capture_to_graph"), "gave False"),
        "is_current_stream_capturing": "gave False",
    },
}


@pytest.mark.parametrize("vendor", OWN_DEVICES)
def test_every_member(vendor: str, simulated: Callable[..., Any]) -> None:
    function = "simulated_checks.interface:of_torch_accelerator"
    answers = simulated(vendor, function, vendor, timeout=300).answer
    assert len(answers) > 90
    beyond = BEYOND.get(vendor, {})
    problems = [
        f"{member}: {problem or 'does right now: take it out of BEYOND'}"
        for member, problem in answers.items()
        if bool(problem) != (member in beyond) or beyond.get(member, "") not in problem
    ]
    assert not problems, "\n".join(problems)


def test_through_a_plugin(tmp_path: Path, simulated: Callable[..., Any]) -> None:
    """The same members of what accel_core finds, probes and builds; plugins' own tests do this too."""
    pin = install_plugin(tmp_path, VENDORS["mlu"])
    answers = simulated("mlu", "simulated_checks.interface:of_plugin", pin, path=[tmp_path]).answer
    assert {member: problem for member, problem in answers.items() if problem} == {}
