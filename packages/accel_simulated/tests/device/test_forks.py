"""A process that is forked after its parent has used the device is refused, as by vendors' runtimes."""

import pytest

CODE = """
import json, torch, accel_core
from accel_testing.conformance.forks import in_fork

there = accel_core.get_accelerator().device()
ones = lambda: torch.ones(2, device=there)
use = lambda: str(ones().sum().item())
print(json.dumps([in_fork(use, 60)[0], ones().sum().item(), in_fork(use, 60)[0]]))
"""


@pytest.mark.parametrize(("vendor", "name"), [("acme", "ACME"), ("cuda", "CUDA"), ("npu", "NPU")])
def test_a_child_that_uses_the_device_after_its_parent_is_refused(simulated, vendor, name):
    before, own, after = simulated(vendor, CODE).answer
    assert (before, own) == ("2.0", 2.0)  # the parent had not used it yet
    assert f"Cannot re-initialize {name} in forked subprocess" in after
    assert "you must use the 'spawn' start method" in after
