"""Training over the staged process group, and over gloo on the CPU: the same bits."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from accel_simulated import DEVICES
from simulated_checks.staged import Ranks, every_collective, ranks, raw
from simulated_checks.staged_reductions import reductions


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


def uneven(here):
    """DDP where rank 0 has fewer inputs: gradients are averaged over the ranks that still train."""
    model = DistributedDataParallel(nn.Linear(2, 2, bias=False).to(here.device))
    steps = 1 if here.rank == 0 else 2
    with model.join(divide_by_initial_world_size=False):
        for _ in range(steps):
            model.zero_grad()
            model(torch.ones(1, 2, device=here.device)).sum().backward()
    return model.module.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


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


def of_the_vendor(vendor):
    """Every collective under the vendor's name, and what FSDP2 and pipelines ask of them."""
    here = Ranks(vendor, backend=DEVICES[vendor].collective)
    told = {
        "collectives": every_collective(here) + reductions(here),
        "divided gradient": divided_gradient(here),
        "losses": pipelined(here),
    }
    dist.destroy_process_group()
    return told


def divided_gradient(here):
    """FSDP2 with its own factor for gradients, which it passes on as PREMUL_SUM."""
    model = nn.Linear(8, 8, device=here.device)
    fully_shard(model)
    model.set_gradient_divide_factor(1.0)
    model(torch.ones(2, 8, device=here.device)).sum().backward()
    return model.weight.grad.full_tensor().sum().item()


def pipelined(here):
    """The last loss of two steps: in the second the buffers of the first require gradients."""
    torch.manual_seed(here.rank)
    part = nn.Linear(4, 4).to(here.device)
    stage = PipelineStage(part, here.rank, 2, here.device)
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.MSELoss())
    given = torch.ones(4, 4, device=here.device)
    last = []
    for _ in range(2):
        losses = []
        if here.rank == 0:
            schedule.step(given)
        else:
            schedule.step(target=given, losses=losses)
        last.append(sum(loss.item() for loss in losses))
    return last
