"""A child that is forked after its parent has used the device cannot use the device."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "fork_and_use.py"


@pytest.mark.parametrize(
    ("vendor", "name"), [("acme", "ACME"), ("cuda", "CUDA"), ("npu", "NPU")]
)
def test_a_child_cannot_use_a_device_that_its_parent_has_used(simulated, vendor, name):
    """As with the vendors' runtimes. Before the parent's first use, a child can use the device."""
    answer = simulated(vendor, PROGRAM).answer
    assert answer["child before the parent"] == "2.0"
    assert answer["parent"] == 2.0
    error = answer["child after the parent"]
    assert f"Cannot re-initialize {name} in forked subprocess" in error
    assert "you must use the 'spawn' start method" in error
