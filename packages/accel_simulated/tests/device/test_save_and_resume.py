"""A run that is saved on one device and resumed on another, as docs/howto/from-torch-cuda.md describes it."""

import pytest
from accel_tests.tools import TREE

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


def test_a_resumed_run_has_the_losses_of_a_run_that_never_left_the_cpu(
    simulated, tmp_path
):
    """So are the host's random numbers: a run on cpu, then acme, then cpu."""
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
