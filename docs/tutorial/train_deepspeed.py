from accel_train.deepspeed import activate

activate()

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch import nn

import accel_core

acc = accel_core.get_accelerator()

torch.manual_seed(0)
acc.manual_seed_all(0)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images[:1792], dtype=torch.float32) / 16  # 28 batches of 64
labels = torch.tensor(labels[:1792])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")
device = engine.device
rank, ranks = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
print(f"rank {rank} of {ranks}: {acc.device_properties().name}, {device}", flush=True)

start, end = acc.Event(enable_timing=True), acc.Event(enable_timing=True)
acc.reset_peak_memory_stats()
start.record()
for epoch in range(5):
    for batch in torch.randperm(len(labels)).split(64):
        batch = batch[rank::ranks]
        x = acc.pin_memory(images[batch]).to(device, torch.bfloat16, non_blocking=True)
        y = acc.pin_memory(labels[batch]).to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(engine(x).float(), y)
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
end.record()
acc.synchronize()
if rank == 0:
    print(f"{start.elapsed_time(end):.0f} ms, at most {acc.max_memory_allocated() / 2**20:.0f} MiB")
engine.save_checkpoint("checkpoints")
