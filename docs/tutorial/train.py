import torch
from sklearn.datasets import load_digits
from torch import nn

import accel_core

acc = accel_core.get_accelerator()
device = acc.device()
dtype = torch.bfloat16 if acc.is_bf16_native() else torch.float32

torch.manual_seed(0)
acc.manual_seed_all(0)
print("training on", acc.device_properties().name, "in", dtype)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images[:1792], dtype=torch.float32) / 16  # 28 batches of 64
labels = torch.tensor(labels[:1792])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

start, end = acc.Event(enable_timing=True), acc.Event(enable_timing=True)
acc.reset_peak_memory_stats()
start.record()
for epoch in range(5):
    for batch in torch.randperm(len(labels)).split(64):
        x = acc.pin_memory(images[batch]).to(device, non_blocking=True)
        y = acc.pin_memory(labels[batch]).to(device, non_blocking=True)
        with acc.autocast(dtype, enabled=dtype != torch.float32):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
end.record()
acc.synchronize()
print(f"{start.elapsed_time(end):.0f} ms, at most {acc.max_memory_allocated() / 2**20:.0f} MiB")
torch.save({"model": model.state_dict(), "rng": acc.get_rng_state()}, "last.pt")
