import torch
from sklearn.datasets import load_digits
from torch import nn

device = torch.device("cuda")

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
print("training on", torch.cuda.get_device_name())

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images[:1792], dtype=torch.float32) / 16  # 28 batches of 64
labels = torch.tensor(labels[:1792])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda.reset_peak_memory_stats()
start.record()
for epoch in range(5):
    for batch in torch.randperm(len(labels)).split(64):
        x = images[batch].pin_memory().to(device, non_blocking=True)
        y = labels[batch].pin_memory().to(device, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
end.record()
torch.cuda.synchronize()
print(f"{start.elapsed_time(end):.0f} ms, at most {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
torch.save({"model": model.state_dict(), "rng": torch.cuda.get_rng_state()}, "last.pt")
