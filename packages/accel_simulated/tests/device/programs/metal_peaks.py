"""Print the memory peaks of mps before and after a reset."""

import json
import torch
import accel_core

acc = accel_core.accelerator("mps")
torch.empty(1 << 20, dtype=torch.uint8, device="mps")
acc.memory_allocated()
peaks = [acc.max_memory_allocated(), acc.max_memory_reserved(), acc.max_memory_cached()]
acc.reset_peak_memory_stats()
acc.reset_max_memory_allocated()
acc.reset_max_memory_cached()
keys = [key for key in acc.memory_stats() if key.endswith("_bytes.all.peak")]
print(
    json.dumps(
        {
            "peaks": peaks,
            "after reset": acc.max_memory_allocated(),
            "keys of peaks": keys,
        }
    )
)
