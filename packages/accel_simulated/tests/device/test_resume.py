"""Saved on one device and resumed on another, as docs/howto/save-and-resume.md does it: cpu, acme, cpu."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accel_tests.tools import TREE

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

PAGE = TREE / "docs/howto/save-and-resume.md"

#: Three steps from a checkpoint, if there is one; the page's own functions save and load.
TRAIN = """
import json, sys
from pathlib import Path
import torch
import accel_core
{functions}
source, target = sys.argv[1:]
acc = accel_core.get_accelerator()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(acc.device())
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
step = load(source, model, optimizer) if Path(source).exists() else 0
losses = []
for step in range(step + 1, step + 4):
    x = torch.linspace(0, step, 32).reshape(8, 4).to(acc.device())
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
save(target, model, optimizer, step)
print(json.dumps({{
    "device": acc.device_name(), "step": step, "losses": losses,
    "host": torch.rand(2).tolist(), "drawn": torch.rand(2, device=acc.device()).tolist(),
}}))
"""


def functions() -> str:
    """The page's first Python block."""
    return PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]


@pytest.fixture
def train(simulated: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(device: str, source: str, target: str) -> dict[str, Any]:
        script = TRAIN.format(functions=functions())
        chosen = {"DS_ACCELERATOR": "cpu" if device == "cpu" else "", "OMP_NUM_THREADS": "1"}
        run = simulated("acme", script, tmp_path / source, tmp_path / target, environ=chosen)
        answer: dict[str, Any] = run.answer
        assert answer["device"] == device
        return answer

    return run


def test_there_and_back(train: Callable[..., dict[str, Any]]) -> None:
    """The losses are those of a run that never left the CPU, and so are the host's random numbers."""
    stayed = [train("cpu", f"{n}.stayed", f"{n + 1}.stayed") for n in range(3)]
    moved = [train(device, f"{n}.moved", f"{n + 1}.moved") for n, device in enumerate(("cpu", "acme", "cpu"))]
    assert [run["step"] for run in moved] == [3, 6, 9]
    for alone, run in zip(stayed, moved, strict=True):
        assert run["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert run["host"] == alone["host"]
    # A state of the CPU's seeds acme, the same one always alike; its own is restored.
    assert train("acme", "1.moved", "again")["drawn"] == moved[1]["drawn"]


STATES = """
import json, torch, accel_core
from accel_core.errors import InvalidDeviceError
acme, cpu = accel_core.get_accelerator(), accel_core.accelerator("cpu")
def said(acc, state):
    try:
        acc.set_rng_state(state)
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
found["current"] = acme.current_device()
try:
    acme.set_rng_state(state, 7, strict=False)
except InvalidDeviceError as error:
    found["range"] = str(error)
print(json.dumps(found))
"""


def test_a_generators_state_of_another_device(simulated: Callable[..., Any]) -> None:
    told = simulated("acme", STATES).answer
    step = "Seed anew: set_rng_state(state, strict=False), or manual_seed(seed)"
    assert told["errors"] == [
        f"generic: a state of another device: 5056 bytes, this one has 16. {step}",
        f"cpu: a state of another device: 16 bytes, this one has 5056. {step}",
    ]
    assert told["seeded"] == [True, False]
    assert told["restored"]
    assert told["current"] == 0
    assert told["range"] == "generic: device index 7 is out of range, 2 devices visible"
