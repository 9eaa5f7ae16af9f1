"""Draw random numbers into a DTensor twice."""

import json

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, empty

dist.init_process_group("accl", store=dist.HashStore(), rank=0, world_size=1)
mesh = dist.init_device_mesh("acme", (1,))
truncated = empty(64, 64, device_mesh=mesh, placements=[Replicate()])
torch.nn.init.trunc_normal_(truncated, a=-1, b=1)
second = torch.nn.init.normal_(torch.empty_like(truncated))
values = truncated.to_local()
print(
    json.dumps(
        {
            "truncated": values.abs().max().item() <= 1,
            "second draw is the same": torch.equal(values, second.to_local()),
        }
    )
)
dist.destroy_process_group()
