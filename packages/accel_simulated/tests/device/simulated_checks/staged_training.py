"""Training over the staged process group, and over gloo on the CPU: the same bits."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from simulated_checks.staged import ranks, raw


def three_steps(here, model, device):
    """Train it on values that every rank has for itself."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        data = here.values(torch.float32, 8, 16, salt=step).to(device)
        optimizer.zero_grad()
        model(data).pow(2).mean().backward()
        optimizer.step()


def data_parallel(here):
    """DDP, three steps with bucket views and a static graph, against DDP over gloo on the CPU."""

    def train(here, device, group):
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Linear(16, 64), nn.GELU(), nn.BatchNorm1d(64), nn.Linear(64, 4)
        ).to(device)
        parallel = DistributedDataParallel(
            model,
            process_group=group,
            bucket_cap_mb=0.005,
            gradient_as_bucket_view=True,
        )
        three_steps(here, parallel, device)
        return [raw(p.detach().cpu()) for p in [*model.parameters(), *model.buffers()]]

    expected = train(here, torch.device("cpu"), here.gloo)
    return train(here, here.device, None) == expected


def fully_sharded(vendor):
    """FSDP2, three steps, against FSDP2 over gloo on the CPU."""

    def train(here, device, group):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 5)).to(device)
        mesh = DeviceMesh.from_group(group, device.type)
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        three_steps(here, model, device)
        return [raw(p.detach().to_local().cpu()) for p in model.parameters()]

    with ranks(vendor) as here:
        expected = train(here, torch.device("cpu"), here.gloo)
        return {"equal": train(here, here.device, dist.group.WORLD) == expected}
