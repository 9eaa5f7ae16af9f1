"""Gather objects in a process group with options of NCCL."""

import json

import torch
import torch.distributed as dist

options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
group = dist.new_group([0], pg_options=options)
objects = [None]
dist.all_gather_object(objects, "object", group=group)
print(
    json.dumps(
        {
            "is_high_priority_stream": options.is_high_priority_stream,
            "gathered": objects,
        }
    )
)
dist.destroy_process_group()
