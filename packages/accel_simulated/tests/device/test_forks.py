"""A process that is forked after its parent has used the device is refused, as by vendors' runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

CODE = """
import json, multiprocessing, sys
import torch
import accel_core

acc = accel_core.get_accelerator()
there = acc.device()

class OnTheDevice(torch.utils.data.Dataset):  # the classic mistake: workers are forked
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=there).cpu()

def batches():
    loader = torch.utils.data.DataLoader(OnTheDevice(), num_workers=1, multiprocessing_context="fork")
    try:
        return [batch.sum().item() for batch in loader]
    except RuntimeError as error:
        return next(line for line in str(error).splitlines() if "forked subprocess" in line)

before = batches()
kept = torch.ones(2, device=there)
after = batches()
print(json.dumps([before, after, kept.sum().item()]))
"""


@pytest.mark.parametrize(("vendor", "name"), [("acme", "ACME"), ("cuda", "CUDA"), ("npu", "NPU")])
def test_workers_that_use_the_device_after_their_parent_are_refused(
    simulated: Callable[..., Any], vendor: str, name: str
) -> None:
    before, after, kept = simulated(vendor, CODE).answer
    assert before == [0.0, 2.0]  # the parent had not used it yet
    assert f"Cannot re-initialize {name} in forked subprocess" in after
    assert "you must use the 'spawn' start method" in after
    assert kept == 2.0
