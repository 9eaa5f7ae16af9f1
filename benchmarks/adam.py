"""One step of Adam on the CPU: ours against DeepSpeed's compiled operator and against torch.optim.

`./dev bench-deepspeed` runs it; DeepSpeed compiles its operator at the first run, which takes minutes. All
sides work on the same four float32 tensors, so that they meet the same memory, with torch's threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from accel_train.ops.cpu_adam import CPUAdamBuilder

from benchmarks.harness import Row, in_turns, ratio_row, show

#: Parameters, and pairs that are measured.
SIZES = ((10_000_000, 201), (100_000_000, 31))
#: The bounds: no slower than the two compiled ones, twice as fast as the one made of torch's functions.
DEEPSPEED, FOREACH, FUSED = 1.0, 0.5, 1.0
_RATE, _BETAS, _EPS = 1e-3, (0.9, 0.999), 1e-8

Tensors = tuple[torch.Tensor, ...]


def rows(sizes: tuple[tuple[int, int], ...] = SIZES) -> list[Row]:
    """Ours against each peer at each size."""
    from deepspeed.ops.op_builder.cpu import CPUAdamBuilder as DeepSpeedBuilder

    ours, theirs = CPUAdamBuilder().load(), DeepSpeedBuilder().load(verbose=False)
    _check(ours, theirs)
    found = []
    for count, rounds in sizes:
        tensors = _tensors(count)
        step = _extension(ours, tensors)
        for peer, bound, make in (
            ("DeepSpeed CPUAdam", DEEPSPEED, lambda t: _extension(theirs, t)),
            (
                "torch.optim.Adam(foreach=True)",
                FOREACH,
                lambda t: _torch(t, foreach=True),
            ),
            ("torch.optim.Adam(fused=True)", FUSED, lambda t: _torch(t, fused=True)),
        ):
            other = make(tensors)
            step(), other()  # threads are started, pages are touched
            pairs = in_turns(partial(_seconds, step), partial(_seconds, other), rounds)
            found.append(
                ratio_row(
                    f"Adam, {count // 1_000_000} M parameters", peer, pairs, bound
                )
            )
    return found


def _tensors(count: int) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    p, g = (torch.randn(count, generator=generator) for _ in range(2))
    return p, g, torch.zeros(count), torch.zeros(count)


def _extension(op: Any, tensors: Tensors) -> Callable[[], None]:
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


def _check(ours: Any, theirs: Any) -> None:
    """The two operators must do the same work: three steps, the same bits."""
    results = []
    for op in (ours, theirs):
        tensors = _tensors(100_003)
        step = _extension(op, tensors)
        for _ in range(3):
            step()
        results.append(tensors)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True)), (
        "not the same numbers"
    )


if __name__ == "__main__":
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {CPUAdamBuilder().load().capability}"
    )
    sys.exit(show("adam", "CPU Adam, one step", rows()))
