"""A block of a transformer trains on every simulated device: forward, backward and compiled, as on the CPU."""

import pytest

from accel_simulated import OWN_DEVICES

CODE = """
import json, sys, torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.profiler import ProfilerActivity, profile

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, mask):
        parts = (each.view(2, 6, 2, 4).transpose(1, 2) for each in self.heads(self.norm(x)).split(8, dim=2))
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

device, compiler = sys.argv[1:]
mask = torch.ones(6, 6, dtype=torch.bool).tril()
causal = step("cpu", None)
timed = [ProfilerActivity.CPU, ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.PrivateUse1]
with profile(activities=timed if device in ("acme", "cuda") else timed[:1]):
    torch.ones(2, device=device) + 1
told = [step(device, None), step(device, mask), step(device, None, compiler)]
print(json.dumps([max(float((a - b).abs().max()) for a, b in zip(causal, got)) for got in told]))
"""


@pytest.mark.parametrize("vendor", OWN_DEVICES)
def test_a_block_of_a_transformer_trains(vendor, simulated):
    # To inductor a simulated device is its own; of torch's types it wants Triton or Metal.
    compiler = "accel" if OWN_DEVICES[vendor].kind == "PrivateUse1" else "aot_eager"
    code = f"import torch, {OWN_DEVICES[vendor].package}\n{CODE}"
    run = simulated(vendor, code, vendor, compiler, timeout=300)
    assert all(off < 1e-6 for off in run.answer)
    # A profiler of torch's that cannot time the device prints its stack.
    assert "frame #" not in run.ended[0].stderr
