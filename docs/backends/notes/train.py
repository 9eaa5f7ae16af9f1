import torch
from torch import nn

import accel_core

acc = accel_core.get_accelerator()
device = acc.device()
torch.manual_seed(0)
print("training on", acc.device_properties().name)

inputs = torch.randn(1024, 16)
targets = inputs.square().sum(dim=1, keepdim=True)
model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for epoch in range(5):
    for x, y in zip(inputs.split(64), targets.split(64), strict=True):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
