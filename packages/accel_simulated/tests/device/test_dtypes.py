"""What can be computed in: as far as the device tells, and no further."""

#: acme's module has no word on float16, and no plugin has: the product is tried.
WHILE_FULL = """
import json, warnings
import torch, torch_acme
import accel_core
from accel_simulated import device

def ask():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return [acc.is_fp16_supported(), [str(warning.message) for warning in caught]]

acc = accel_core.accelerator("generic")
full = torch.empty(4096, dtype=torch.uint8, device="acme")
before, _ = device.memory, device.set_memory_limit(4096)
first = ask()
device.set_memory_limit(before)
print(json.dumps([first, ask(), 0 if device.set_memory_limit(4096) else ask()]))
"""


def test_a_device_without_memory_left_is_asked_again(simulated):
    first, second, remembered = simulated("acme", WHILE_FULL).answer
    assert first[0] is False
    assert "acme" in first[1][0] or "generic" in first[1][0]
    assert "could not be tried" in first[1][0]
    assert "OutOfMemoryError" in first[1][0]
    assert "ACCEL_SIMULATE_MEMORY_MB=" in first[1][0]
    assert second == remembered == [True, []]
