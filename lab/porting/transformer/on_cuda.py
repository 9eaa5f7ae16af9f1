"""A small transformer: compiled, under autocast, resumed from its checkpoint, on one device or as ranks."""

import json
import os

import torch
from torch import nn
from torch.distributed import init_process_group
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
device = "cuda:" + os.environ.get("LOCAL_RANK", "0")
torch.cuda.set_device(device)
if world > 1:
    init_process_group("nccl")


class Model(nn.Module):
    def __init__(self, tokens=16, width=32, length=8):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.between, self.after = (nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, width))
        self.head = nn.Linear(width, tokens)

    def forward(self, words):
        x = self.token(words) + self.place(torch.arange(words.shape[1], device=words.device))
        parts = self.attention(self.before(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(self.after(x + self.mlp(self.between(x))))


def batch(step):
    numbers = torch.Generator().manual_seed(step * world + rank)
    words = torch.randint(0, 16, (4, 9), generator=numbers).to(device)
    return words[:, :-1], words[:, 1:]


def train(steps, saved=None):
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    compiled = torch.compile(model)
    net = (
        DistributedDataParallel(compiled, device_ids=[torch.cuda.current_device()]) if world > 1 else compiled
    )
    losses = []
    for step in steps:
        words, targets = batch(step)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(net(words).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


losses, state = train(range(3))
torch.save(state, f"checkpoint{rank}.pt")
losses += train(range(3, 6), torch.load(f"checkpoint{rank}.pt", map_location=device))[0]
if rank == 0:
    print(json.dumps({"device": device, "losses": losses}))
if world > 1:
    torch.distributed.destroy_process_group()
