"""A convolutional network in channels_last, with torch's profiler and a scaler, on one device or as ranks."""

import json
import os

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
torch.backends.cudnn.benchmark = True
if world > 1:
    init_process_group("nccl")

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
).to(device, memory_format=torch.channels_last)  # fmt: skip
net = DistributedDataParallel(model, device_ids=[device.index]) if world > 1 else model
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", init_scale=256.0)

losses = []
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=activities, schedule=schedule(wait=1, warmup=1, active=2, repeat=1)) as profiler:
    for step in range(6):
        numbers = torch.Generator().manual_seed(step * world + rank)
        images = torch.rand(4, 3, 16, 16, generator=numbers).to(device, memory_format=torch.channels_last)
        labels = torch.randint(0, 4, (4,), generator=numbers).to(device)
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        profiler.step()
assert any("conv" in event.key for event in profiler.key_averages())
assert torch.cuda.max_memory_allocated() > 0
torch.cuda.synchronize()
if rank == 0:
    print(json.dumps({"device": str(device), "losses": losses}))
if world > 1:
    destroy_process_group()
