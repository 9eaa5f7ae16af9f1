"""Train on `generic`: TorchTPU is started by the user's own program, which knows nothing of accel.

`_init_device` is what google-pytorch documents. Of our plugins the one for the TPU is hidden.
"""

import json

import torch
import torch_tpu  # noqa: F401 - registers the device
from torch_tpu import _loader

_loader._init_device("tpu")

import accel_core  # noqa: E402 - the program has started the device before
from accel_core import packages  # noqa: E402

everything = packages.entry_points
packages.entry_points = lambda group: tuple(
    found for found in everything(group) if found.name != "tpu"
)

acc = accel_core.get_accelerator()
model = torch.nn.Linear(4, 1).to(acc.device())
x = torch.ones(2, 4, device=acc.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
losses = []
for _ in range(3):
    loss = (model(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
acc.synchronize()
acc.empty_host_cache()
for name in ("device_count", "current_device", "get_rng_state"):
    getattr(acc, name)()
found = {
    "name": acc.name,
    "device": acc.device_name(),
    "devices": acc.device_count(),
    "compiler": acc.get_compile_backend(),
    "losses": losses,
    "refused": sorted(acc.refused),
}
print(json.dumps(found))
