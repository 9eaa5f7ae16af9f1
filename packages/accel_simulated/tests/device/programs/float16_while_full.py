"""Ask for float16 while the device's memory is full, and again when it is not.

No module and no plugin declares float16 for acme, so accel tries a product.
"""

import json
import warnings

import torch
import torch_acme

import accel_core
from accel_simulated import device


def ask_for_float16():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return {
            "supported": acc.is_fp16_supported(),
            "warnings": [str(warning.message) for warning in caught],
        }


acc = accel_core.accelerator("generic")
occupied = torch.empty(4096, dtype=torch.uint8, device="acme")
memory_size = device.memory
answers = {}
device.set_memory_limit(4096)
answers["while full"] = ask_for_float16()
device.set_memory_limit(memory_size)
answers["with memory"] = ask_for_float16()
device.set_memory_limit(4096)
answers["full again"] = ask_for_float16()
print(json.dumps(answers))
