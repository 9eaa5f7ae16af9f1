"""`python -m benchmarks.launching`: a kernel on the simulated device against the same one on the CPU.

The kernels are the CPU's, on memory of the host's: what is measured is what the way through the device adds.
Both sides run on the calling thread, so its CPU time is taken: what else runs on the machine counts
less.
Needs a C++ compiler, and `packages/accel_simulated` in the environment (session `all-tests` has it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, ratio_row, show

#: Elements of each tensor, the bound of the ratio, and how often a call is repeated in a round.
_SIZES = {"1 k": (1 << 10, 2.0, 1000), "1 M": (1 << 20, 1.05, 30)}
_ROUNDS = 61


def rows() -> list[Row]:
    """A row for each operator and size, measured in one process that simulates `acme`."""
    root = str(Path(__file__).parents[1])
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    simulated = {
        "ACCEL_SIMULATE": "acme:1",
        "ACCEL_SIMULATE_MEMORY_MB": "2048",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import benchmarks.launching as b, json; print(json.dumps(b.measure()))"],
        env={**kept, **simulated, "PYTHONPATH": root}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    answer: dict[str, list[tuple[float, float]]] = json.loads(
        done.stdout.splitlines()[-1]
    )
    return [
        ratio_row(
            f"{name} elements", "on the CPU", pairs, _SIZES[name.rpartition(", ")[2]][1]
        )
        for name, pairs in answer.items()
    ]


def measure() -> dict[str, list[tuple[float, float]]]:
    """Seconds a call, on the device and on the CPU by turns; each round has tensors of its own.

    Where a tensor lies in memory decides as much as who computes, for large ones, and differs from one
    allocation to the next on both sides.
    """
    import torch

    torch.set_num_threads(1)
    found = {}
    for size, (elements, _, number) in _SIZES.items():
        for name in _calls(torch, elements, "cpu"):
            times = (
                max(1, number // 100)
                if name == "matmul" and elements > 1 << 12
                else number
            )
            pairs = []
            for turn in range(_ROUNDS if times > 1 else 15):
                both = {}
                for device in ("acme", "cpu") if turn % 2 else ("cpu", "acme"):
                    call = _calls(torch, elements, device)[name]
                    _seconds(call, max(1, times // 10))
                    both[device] = _seconds(call, times)
                pairs.append((both["acme"], both["cpu"]))
            found[f"{name}, {size}"] = pairs
    return found


def _seconds(call: Callable[[], object], number: int) -> float:
    repeat = range(number)
    start = time.thread_time_ns()
    for _ in repeat:
        call()
    return (time.thread_time_ns() - start) / number / 1e9


def _calls(torch: Any, elements: int, device: str) -> dict[str, Callable[[], object]]:
    side = int(elements**0.5)
    a, b = torch.rand(2, elements, device=device).unbind()
    left, right = torch.rand(2, side, side, device=device).unbind()
    out, bias = torch.empty(elements, device=device), torch.rand(side, device=device)
    return {
        "add": lambda: torch.add(a, b),
        "add, out=": lambda: torch.add(a, b, out=out),
        "add_": lambda: a.add_(b),
        "mul": lambda: torch.mul(a, b),
        "mul_": lambda: b.mul_(1.0),
        "relu": lambda: torch.relu(a),
        "sum": lambda: a.sum(),
        "matmul": lambda: left @ right,
        "linear": lambda: torch.nn.functional.linear(left[:1], right, bias),
        "softmax": lambda: torch.softmax(left, -1),
        "copy_": lambda: a.copy_(b),
    }


if __name__ == "__main__":
    sys.exit(show("launching", "A kernel on the simulated device", rows()))
