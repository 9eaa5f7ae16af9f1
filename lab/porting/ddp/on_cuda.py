"""Data parallelism: a launcher starts the ranks, or `python ddp.py RANKS` spawns them."""

import json
import os
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def run(rank, world, init_method="env://"):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", init_method=init_method, rank=rank, world_size=world)
    numbers = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(64, 8, generator=numbers), torch.randn(64, 1, generator=numbers))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            outputs = model(inputs.cuda(rank, non_blocking=True))
            loss = nn.functional.mse_loss(outputs, targets.cuda(rank, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    total = torch.tensor(losses, device=device)
    distributed.all_reduce(total)
    if rank == 0:
        print(json.dumps({"device": str(device), "losses": (total / world).tolist()}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        count, place = int(sys.argv[1]), f"file://{os.path.abspath('meeting')}"  # noqa: PTH100
        torch.multiprocessing.spawn(run, (count, place), nprocs=count)
