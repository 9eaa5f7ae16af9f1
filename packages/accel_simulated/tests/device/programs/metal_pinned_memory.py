"""Pin host memory with the accelerator of mps."""

import json
import torch
import accel_core

acc = accel_core.accelerator("mps")
host = torch.arange(6.0).view(2, 3)
made = [
    acc.pin_memory(host),
    acc.pin_memory(host.to("mps")),
    acc.pin_memory(host, make_copy=False),
    acc.pin_empty(2, 3, dtype=torch.int8),
    acc.pin_empty_like(host),
]
print(
    json.dumps(
        {
            "pinned": [acc.is_pinned(tensor) for tensor in made],
            "devices": [tensor.device.type for tensor in made],
            "copies are equal": [torch.equal(tensor, host) for tensor in made[:2]],
        }
    )
)
