"""One step of Adam on the CPU: ours against DeepSpeed's compiled operator and against torch.optim.

`./dev bench-deepspeed` runs it; DeepSpeed compiles its operator at the first run, which takes minutes. In an
environment without DeepSpeed, `python -m benchmarks.adam` measures against torch alone. All sides work on the
same four float32 tensors, so that they meet the same memory, with torch's threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import torch

from accel_train.ops.portable import CPUAdamBuilder
from benchmarks.harness import Row, in_turns, ratio_row, show

#: Parameters, and pairs that are measured.
SIZES = ((10_000_000, 101), (100_000_000, 31))
#: The bounds: no slower than the compiled kernels of DeepSpeed and torch, twice as fast as torch's foreach.
DEEPSPEED, FOREACH, FUSED = 1.0, 0.5, 1.0
_RATE, _BETAS, _EPS = 1e-3, (0.9, 0.999), 1e-8

Tensors = tuple[torch.Tensor, ...]


def rows(sizes: tuple[tuple[int, int], ...] = SIZES) -> list[Row]:
    """Ours against each peer at each size."""
    ours = CPUAdamBuilder().load()
    _check(ours)
    found = []
    for count, rounds in sizes:
        tensors = _tensors(count)
        step = _operator(ours, tensors)
        for peer, bound, other in _peers(tensors):
            step(), other()  # threads are started, pages are touched
            pairs = in_turns(partial(_seconds, step), partial(_seconds, other), rounds)
            name = f"Adam, {count // 1_000_000} M parameters"
            found.append(ratio_row(name, peer, pairs, bound))
    return found


def _peers(tensors: Tensors) -> Iterator[tuple[str, float, Callable[[], None]]]:
    """The name, the bound and a step of each."""
    if find_spec("deepspeed"):
        from deepspeed.ops.op_builder.cpu import CPUAdamBuilder as DeepSpeedBuilder

        theirs = DeepSpeedBuilder().load(verbose=False)
        yield "DeepSpeed CPUAdam", DEEPSPEED, _operator(theirs, tensors)
    for peer, bound, how in (
        ("torch.optim.Adam(foreach=True)", FOREACH, {"foreach": True}),
        ("torch.optim.Adam(fused=True)", FUSED, {"fused": True}),
    ):
        yield peer, bound, _torch(tensors, **how)


def _tensors(count: int) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    p, g = (torch.randn(count, generator=generator) for _ in range(2))
    return p, g, torch.zeros(count), torch.zeros(count)


def _operator(op: Any, tensors: Tensors) -> Callable[[], None]:
    steps = iter(range(1, 1_000_000))
    op.create_adam(0, _RATE, *_BETAS, _EPS, 0.0, False, False)
    return lambda: op.adam_update(
        0, next(steps), _RATE, *_BETAS, _EPS, 0.0, True, *tensors
    )


def _torch(tensors: Tensors, **how: bool) -> Callable[[], None]:
    p, g, m, v = tensors
    parameter = torch.nn.Parameter(p)
    parameter.grad = g
    optimizer = torch.optim.Adam([parameter], lr=_RATE, betas=_BETAS, eps=_EPS, **how)
    optimizer.state[parameter] = {
        "step": torch.tensor(0.0),
        "exp_avg": m,
        "exp_avg_sq": v,
    }
    return lambda: optimizer.step()


def _seconds(step: Callable[[], None]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


def _check(ours: Any) -> None:
    """Ours must do the work of torch's fused kernel: three steps, the same bits."""
    mine, theirs = _tensors(100_003), _tensors(100_003)
    steps = _operator(ours, mine), _torch(theirs, fused=True)
    for _ in range(3):
        for step in steps:
            step()
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True)), (
        "not the same numbers"
    )


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    sys.exit(show("adam", "CPU Adam, one step", rows()))
