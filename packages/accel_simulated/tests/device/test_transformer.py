"""Trainings on simulated devices: a transformer's block, and a run saved on one and resumed on another."""

import pytest
from accel_tests.tools import TREE

from accel_simulated import OWN_DEVICES

# ---------------------------------------------------------------------------- transformer
# A block of a transformer on every simulated device: forward, backward and compiled, as on the CPU.


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


# ---------------------------------------------------------------------------- resume
# Saved on one device and resumed on another, as docs/howto/from-torch-cuda.md does it: cpu, acme, cpu.


PAGE = TREE / "docs/howto/from-torch-cuda.md"

#: Runs of three steps each; the page's own functions save and load, and nothing else passes between runs.
TRAIN = """
import json, sys
from pathlib import Path
import torch
import accel_core
{functions}
folder, acme = Path(sys.argv[1]), accel_core.get_accelerator()
def run(name, source, target):
    with accel_core.use_accelerator(acme if name == "acme" else name) as acc:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
        model = torch.nn.Sequential(*layers).to(acc.device())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        step = load(folder / source, model, optimizer) if source else 0
        losses = []
        for step in range(step + 1, step + 4):
            x = torch.linspace(0, step, 32).reshape(8, 4).to(acc.device())
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        save(folder / target, model, optimizer, step)
        host, drawn = torch.rand(2).tolist(), torch.rand(2, device=acc.device()).tolist()
        return {{"device": loss.device.type, "step": step, "losses": losses, "host": host, "drawn": drawn}}
first = run("cpu", "", "1")
stayed = [first, run("cpu", "1", "2.stayed"), run("cpu", "2.stayed", "3.stayed")]
moved = [first, run("acme", "1", "2"), run("cpu", "2", "3")]
print(json.dumps([stayed, moved, run("acme", "1", "again")]))
"""


def test_there_and_back(simulated, tmp_path):
    """The losses are those of a run that never left the CPU, and so are the host's random numbers."""
    functions = (
        PAGE.read_text(encoding="utf-8")
        .partition("\n## Move checkpoints between devices\n")[2]
        .partition("```python\n")[2]
        .partition("```")[0]
    )
    stayed, moved, again = simulated(
        "acme", TRAIN.format(functions=functions), tmp_path
    ).answer
    assert [run["device"] for run in moved] == ["cpu", "acme", "cpu"]
    assert [run["step"] for run in moved] == [3, 6, 9]
    for alone, run in zip(stayed, moved, strict=True):
        assert run["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert run["host"] == alone["host"]
    # A state of the CPU's seeds acme, the same one always alike.
    assert again["drawn"] == moved[1]["drawn"]


STATES = """
import json, torch, accel_core
from accel_core.errors import InvalidDeviceError
acme, cpu = accel_core.get_accelerator(), accel_core.accelerator("cpu")
def said(acc, state, *where, **how):
    try:
        acc.set_rng_state(state, *where, **how)
    except InvalidDeviceError as error:
        return str(error)
def drawn(acc, index=None):
    return torch.rand(3, device=acc.device(index)).tolist()
found = {"errors": [said(acme, cpu.get_rng_state()), said(cpu, acme.get_rng_state())]}
seeded = []
for seed in (1, 1, 2):
    cpu.manual_seed(seed)
    acme.set_rng_state(cpu.get_rng_state(), 1, strict=False)
    seeded.append(drawn(acme, 1))
found["seeded"] = [seeded[0] == seeded[1], seeded[0] == seeded[2]]
state = acme.get_rng_state()
first = drawn(acme)
acme.set_rng_state(state.to(acme.device()))  # as torch.load(..., map_location=acme.device()) gives it
found["restored"] = drawn(acme) == first
found["range"] = said(acme, state, 7, strict=False)
print(json.dumps(found))
"""


def test_a_generators_state_of_another_device(simulated):
    told = simulated("acme", STATES).answer
    step = "so the state is from another type of device. Seed the device instead: "
    step += "set_rng_state(state, strict=False), or manual_seed(seed)"
    assert told["errors"] == [
        f"generic: this state has 5056 bytes, but a state of this device has 16, {step}",
        f"cpu: this state has 16 bytes, but a state of this device has 5056, {step}",
    ]
    assert told["seeded"] == [True, False]
    assert told["restored"]
    assert told["range"] == "generic: device index 7 is out of range, 2 devices visible"
