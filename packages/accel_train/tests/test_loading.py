"""`can_pin_memory` against what torch's DataLoader does with it, a process for each device."""

import pytest

pytest.importorskip("torch")

from accel_tests.on_simulated import run_on

from accel_simulated import CannotBuildError

LOAD = """
import json, warnings, torch
from torch.utils.data import DataLoader, TensorDataset
import accel_core
from accel_train import can_pin_memory
warnings.simplefilter("error")
acc = accel_core.get_accelerator()
pin = can_pin_memory()
loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=pin)
batches = [batch for (batch,) in loader]
pinned = [acc.is_pinned(batch) for batch in batches]
told = [can_pin_memory(acc), can_pin_memory(accel_core.accelerator("cpu"))]
sums = [batch.to(acc.device()).sum().item() for batch in batches]
print(json.dumps([acc.device_type, pin, pinned, sums, told]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("device", "pins"), [("acme", True), ("plain", False)])
def test_a_loader_pins_where_the_device_has_page_locked_memory(device, pins):
    try:
        answer = run_on(device, LOAD).answer
    except CannotBuildError as error:
        pytest.skip(str(error))
    assert answer == [device, pins, [pins, pins], [1.0, 5.0], [pins, False]]
