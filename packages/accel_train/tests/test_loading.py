"""`can_pin_memory` and `keep_parameters` against what torch does, a process for each device.

Session tpu-real has the device whose parameters need to be kept.
"""

import pytest

pytest.importorskip("torch")

from accel_tests.on_simulated import run_on

LOAD = """
import json, warnings, torch
from torch.utils.data import DataLoader, TensorDataset
import accel_core
from accel_train import can_pin_memory
from accel_train.moving import keep_parameters
warnings.simplefilter("error")
acc = accel_core.get_accelerator()
pin = can_pin_memory()
loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=pin)
batches = [batch for (batch,) in loader]
pinned = [acc.is_pinned(batch) for batch in batches]
cpu, before = accel_core.accelerator("cpu"), torch.get_rng_state()
told = [can_pin_memory(acc), can_pin_memory(cpu)]
keep_parameters(acc)
keep_parameters(cpu)
drawn = not torch.equal(torch.get_rng_state(), before)
kept = [torch.__future__.get_swap_module_params_on_conversion(), drawn]
sums = [batch.to(acc.device()).sum().item() for batch in batches]
print(json.dumps([acc.device_type, pin, pinned, sums, told, kept]))
"""


@pytest.mark.parametrize(("device", "pins"), [("acme", True), ("plain", False)])
def test_a_loader_pins_where_the_device_has_pinned_memory_and_parameters_stay(
    device, pins
):
    told = run_on(device, LOAD).answer
    assert told == [
        device,
        pins,
        [pins, pins],
        [1.0, 5.0],
        [pins, False],
        [False, False],
    ]
