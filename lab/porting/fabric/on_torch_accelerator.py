"""A loop of one's own on Lightning's Fabric, with a checkpoint."""

import json
import sys

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric(accelerator="auto", devices=int(sys.argv[1]), strategy="ddp", precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    with fabric.init_module():
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    numbers = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(48, 8, generator=numbers), torch.randint(0, 3, (48,), generator=numbers)
    start = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=start) / 4)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(inputs, targets), batch_size=6))
    losses = []
    for epoch in range(2):
        for data, labels in loader:
            loss = nn.functional.cross_entropy(model(data), labels)
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(fabric.all_reduce(loss.detach()).item())
        state = {"model": model, "optimizer": optimizer, "epoch": epoch}
        fabric.save("checkpoint.pt", state)
        fabric.barrier()
        fabric.load("checkpoint.pt", state)
    if fabric.is_global_zero:
        print(json.dumps({"device": str(fabric.device), "losses": losses}))


if __name__ == "__main__":
    main()
