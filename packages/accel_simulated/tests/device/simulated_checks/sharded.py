"""What torch spreads over two ranks, on a simulated device and, to the bit, on the CPU beside it.

Plain sharding and checkpoints are the kit's checks of level 3.
"""

import importlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, randn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from accel_simulated import VENDORS

HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def everything(vendor):
    """Each answer is true in every rank, but those that name something."""
    importlib.import_module(VENDORS[vendor].package)
    rank = int(os.environ["RANK"])
    torch.accelerator.set_device_index(rank)
    mesh = init_device_mesh(vendor, (2,), mesh_dim_names=("shards",))
    host = DeviceMesh.from_group(
        dist.new_group(backend="gloo"), "cpu", mesh_dim_names=("shards",)
    )
    trained = _sharded(mesh)
    answers = {
        "backend": dist.get_backend_config(),
        "device": str(next(trained[0].parameters()).to_local().device),
        "FSDP2": _same(trained, _sharded(host)),
        "FSDP2 in bfloat16": _same(
            _sharded(mesh, mp_policy=HALF), _sharded(host, mp_policy=HALF)
        ),
        "FSDP2 offloaded": _same(
            _sharded(mesh, offload_policy=CPUOffloadPolicy()), _sharded(host)
        ),
        "tensor parallel": _same(_split(mesh), _split(host)),
        "DTensor": _distributed_tensors(mesh),
        "moved": _moved(vendor, rank),
    }
    dist.destroy_process_group()
    return answers


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def _train(network, optimizer, data):
    for _ in range(3):
        optimizer.zero_grad()
        network(data).pow(2).mean().backward()
        optimizer.step()


def _data(mesh, rank):
    """Each rank's own rows."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(8, 6, generator=generator)[rank::2]
        .contiguous()
        .to(mesh.device_type)
    )


def _sharded(mesh, **policies):
    network = _network()
    if "offload_policy" not in policies:
        network.to(mesh.device_type)
    for layer in (network[0], network[2], network):
        fully_shard(layer, mesh=mesh, **policies)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, foreach=True)
    _train(network, optimizer, _data(mesh, mesh.get_local_rank()))
    return network, optimizer


def _split(mesh):
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    network = parallelize_module(_network().to(mesh.device_type), mesh, plan)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, foreach=True)
    _train(network, optimizer, _data(mesh, 0))
    return network, optimizer


def _same(one, other):
    ours, theirs = (
        [each.full_tensor().cpu() for each in net.parameters()]
        for net, _ in (one, other)
    )
    return all(map(torch.equal, ours, theirs))


def _distributed_tensors(mesh):
    whole, other = torch.arange(12.0).view(4, 3), torch.arange(6.0).view(3, 2)
    rows = distribute_tensor(whole.to(mesh.device_type), mesh, [Shard(0)])
    product = rows @ distribute_tensor(other.to(mesh.device_type), mesh, [Shard(1)])
    columns = rows.redistribute(mesh, [Shard(1)])  # all to all
    random = randn(4, 2, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
    return (
        torch.equal(
            product.redistribute(mesh, [Replicate()]).to_local().cpu(), whole @ other
        )
        and torch.equal(columns.full_tensor().cpu(), whole)
        and rows.sum().full_tensor().item() == 66
        and not torch.equal(random[:2], random[2:])
    )


def _moved(vendor, rank):
    """What each collective leaves in this rank that the above and the kit's checks do not use."""

    def filled(*values):
        return torch.tensor(values, dtype=torch.float32, device=vendor)

    gathered = [filled(0), filled(0)]
    dist.gather(filled(rank), gathered if rank == 0 else None, dst=0)
    scattered = filled(0)
    dist.scatter(scattered, [filled(5), filled(6)] if rank == 0 else None, src=0)
    reduced = filled(rank, 4)
    dist.reduce(reduced, dst=1, op=dist.ReduceOp.AVG)
    together = [filled(rank), filled(rank, 1)]
    with dist._coalescing_manager(device=torch.device(vendor, rank)):
        for tensor in together:
            dist.all_reduce(tensor)
    works = [
        dist.P2POp(dist.isend, filled(rank), 1 - rank),
        dist.P2POp(dist.irecv, received := filled(9), 1 - rank),
    ]
    for work in dist.batch_isend_irecv(works):
        work.wait()
    stacked, part = torch.zeros(2, 1, 2, device=vendor), filled(0, 0).view(2, 1)
    dist.all_gather_into_tensor(stacked, filled(rank, 7).view(2, 1).t())
    dist.reduce_scatter_tensor(part, stacked.flatten(1))
    reductions = [reduced] if rank == 1 else []
    moved = [gathered, [scattered], reductions, together, [received, stacked, part]]
    return {"values": [[each.tolist() for each in tensors] for tensors in moved]}
