"""Train a small network, on the chosen accelerator or on the CPU, and print the losses as JSON."""

import json
import sys

import torch

import accel_core

accelerator = accel_core.accelerator(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
)
inputs, labels = torch.randn(32, 8), torch.randint(0, 4, (32,))
device = accelerator.device()
model.to(device)
inputs, labels = inputs.to(device), labels.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"device": device.type, "losses": losses}))
