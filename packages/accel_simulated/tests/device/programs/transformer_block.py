"""Train a transformer block on CPU and on a device; print the largest differences of gradients."""

import importlib
import json
import sys

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.heads, self.out = (
            nn.LayerNorm(8),
            nn.Linear(8, 24),
            nn.Linear(8, 8),
        )

    def forward(self, x, mask):
        parts = (
            each.view(2, 6, 2, 4).transpose(1, 2)
            for each in self.heads(self.norm(x)).split(8, dim=2)
        )
        y = attention(*parts, attn_mask=mask, is_causal=mask is None)
        return x + self.out(y.transpose(1, 2).reshape(2, 6, 8))


def step(device, mask, compiler=""):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(2, 6, 8)
    block.to(device)
    run = torch.compile(block, backend=compiler) if compiler else block
    loss = run(x.to(device), mask if mask is None else mask.to(device)).square().mean()
    loss.backward()
    return [loss.detach().cpu(), *(each.grad.cpu() for each in block.parameters())]


device, package, compiler = sys.argv[1:]
importlib.import_module(package)
mask = torch.ones(6, 6, dtype=torch.bool).tril()
causal = step("cpu", None)
activities = [ProfilerActivity.CPU]
if device == "cuda":
    activities.append(ProfilerActivity.CUDA)
elif device == "acme":
    activities.append(ProfilerActivity.PrivateUse1)
with profile(activities=activities):
    torch.ones(2, device=device) + 1


def largest_difference(results):
    pairs = zip(causal, results, strict=True)
    return max(float((expected - result).abs().max()) for expected, result in pairs)


print(
    json.dumps(
        {
            "causal": largest_difference(step(device, None)),
            "with a mask": largest_difference(step(device, mask)),
            "compiled": largest_difference(step(device, None, compiler)),
        }
    )
)
