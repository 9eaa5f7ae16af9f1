"""One step of data-parallel training over the vendor's collective backend, in each of several processes."""

from __future__ import annotations

import importlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from accel_simulated import VENDORS


def step(vendor: str) -> dict[str, object]:
    """Train one step; the gradients must be those of the whole batch on CPU."""
    importlib.import_module(VENDORS[vendor].package)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(VENDORS[vendor].collective)
    known = dist.Backend.default_device_backend_map
    assert vendor in known, known
    assert not [name for name in known if len(name) == 1], "torch took the device's name letter by letter"
    try:
        _collectives(vendor, rank, size)
        _training(vendor, rank, size)
        return {
            "rank": rank,
            "backend": dist.get_backend(),
            "device": torch.accelerator.current_device_index(),
        }
    finally:
        dist.destroy_process_group()


def _collectives(vendor: str, rank: int, size: int) -> None:
    total = torch.full((3,), float(rank + 1), device=vendor)
    dist.all_reduce(total)
    assert total.tolist() == [size * (size + 1) / 2] * 3
    parts = [torch.zeros(2, device=vendor) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank), device=vendor))
    assert [part.tolist() for part in parts] == [[float(other)] * 2 for other in range(size)]
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # before torch 2.13
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    whole = torch.zeros(2 * size, device=vendor)
    all_gather(whole, torch.full((2,), float(rank), device=vendor))
    assert whole.tolist() == [float(other) for other in range(size) for _ in range(2)]
    mine = torch.zeros(2, device=vendor)
    reduce_scatter(mine, torch.arange(2.0 * size, device=vendor))
    assert mine.tolist() == [size * (2 * rank), size * (2 * rank + 1)]
    given = torch.full((2,), float(rank + 5), device=vendor)
    dist.broadcast(given, src=1)
    assert given.tolist() == [6.0, 6.0]
    dist.barrier()


def _training(vendor: str, rank: int, size: int) -> None:
    torch.manual_seed(0)
    data = torch.randn(4 * size, 6)

    def model() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    alone = model()
    alone(data).pow(2).mean().backward()
    parallel = DistributedDataParallel(model().to(vendor))
    parallel(data[rank::size].to(vendor)).pow(2).mean().backward()
    for ours, theirs in zip(parallel.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
