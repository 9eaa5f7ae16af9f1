"""A machine to probe and a device to drive, both from the repository's `tests/contracts`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[3] / "tests" / "contracts"
if not CONTRACTS.is_dir():
    collect_ignore_glob = ["*"]  # outside the repository there is no surface to test against
elif str(CONTRACTS) not in sys.path:
    sys.path.insert(0, str(CONTRACTS))


@pytest.fixture
def machine(tmp_path):
    from accel_contracts.cases import Machine

    return Machine(tmp_path, "accel_mlu", "torch_mlu")


@pytest.fixture
def device():
    """`(torch.mlu, recorder)`: simulated, with the names and signatures of the vendor's surface."""
    from accel_contracts.cases import simulated

    with simulated("mlu") as found:
        yield found
