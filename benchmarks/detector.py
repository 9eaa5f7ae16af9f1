"""`python -m benchmarks.detector`: runs on a simulated device with `accel simulate --report`, and without.

A training loop that asks for CUDA in each step, as libraries do, and a test-suite that does little else.
Both sides are whole runs of `accel simulate acme` (needs g++), start, report and all; by turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, ratio_row, show

_ROUNDS = 7
_BOUND = 1.3
_LOOP = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to("acme")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(500):
    x, y = torch.randn(64, 256, device="acme"), torch.randint(0, 10, (64,), device="acme")
    with torch.autocast("acme", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if torch.cuda.is_available() and x.is_cuda:
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
"""
_TESTS = """
import os, pytest, torch

@pytest.fixture(autouse=True)
def around():
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    yield
    torch.cuda.empty_cache()

@pytest.mark.parametrize("size", range(1, 401))
def test_sum(size):
    device = "cuda" if torch.cuda.is_available() else "acme"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
    x = torch.randn(size, 8, device=device)
    assert not x.is_cuda and torch.cuda.device_count() == 0
    assert torch.allclose((x + x).sum().cpu(), 2 * x.cpu().sum(), atol=1e-3)
"""


def rows() -> list[Row]:
    """A row for the loop and one for the suite."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "loop.py").write_text(_LOOP)
        (folder / "test_all.py").write_text(_TESTS)
        made = []
        for what, words in (
            ("a training of 500 steps", ["loop.py"]),
            (
                "a suite of 400 tests",
                ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_all.py"],
            ),
        ):
            simulate = [sys.executable, "-m", "accel_core", "simulate"]
            peer = [*simulate, "acme", "--", sys.executable, *words]
            ours = [
                *simulate,
                "--report",
                "a.md",
                "--report",
                "a.json",
                *peer[len(simulate) :],
            ]
            for side in (ours, peer):  # the device is built, and files are in memory
                _run(side, folder)
            pairs = [
                _pair(
                    lambda a=ours: _run(a, folder), lambda b=peer: _run(b, folder), turn
                )  # type: ignore[misc]
                for turn in range(_ROUNDS)
            ]
            made.append(ratio_row(f"{what}, with a report", "without", pairs, _BOUND))
    return made


def _pair(
    ours: Callable[[], float], peer: Callable[[], float], turn: int
) -> tuple[float, float]:
    if turn % 2:
        theirs = peer()
        return ours(), theirs
    return ours(), peer()


def _run(command: list[str], folder: Path) -> float:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(show("detector", "The detector", rows()))
