"""`accel bench cpu` against measurements that share nothing with it: `python -m benchmarks.independent`.

numpy's copy and products, and a loop in C like STREAM's Copy, in turns with ours: same sizes, same threads.
A figure is the median of the rounds' ratios: of the fastest repeats, as STREAM counts, which is to be within
15 % of 1; and of the medians, which others on the cores disturb.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

import accel_core
from accel_core.hardware import usable_cores
from accel_tools.bench.records import FULL, Effort, Measurement
from accel_tools.bench.run import all_steps
from accel_tools.bench.units import format_with_prefix

_BOUND = 1.15
#: Of one side of one round.
_SECONDS = 0.2
_LOOP = """
#include <stddef.h>
void copy(double *restrict to, const double *restrict from, size_t count) {
    #pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) to[i] = from[i];
}
"""


class Rates(NamedTuple):
    """Of the repeats of one side in one round."""

    fastest: float
    median: float


def row_of(title: str, effort: Effort) -> Measurement:
    """The row of `accel bench cpu`."""
    wanted = next(
        step
        for step in all_steps(accel_core.accelerator("cpu"), effort, ranks=1)
        if step.title == title
    )
    (row,) = wanted.run()
    return row


def ours(title: str, effort: Effort) -> Rates:
    row = row_of(title, effort)
    assert row.value is not None, row
    assert row.best is not None
    return Rates(row.best, row.value)


def rates(call: Callable[[], object], work: float) -> Rates:
    """`work` by the time of a call."""
    call()
    seconds, start = [], perf_counter()
    while len(seconds) < 5 or perf_counter() - start < _SECONDS:
        before = perf_counter()
        call()
        seconds.append(perf_counter() - before)
    return Rates(work / min(seconds), work / statistics.median(seconds))


def stream_loop(threads: int) -> Callable[[np.ndarray, np.ndarray], None]:
    """The loop, compiled; not turned into a call of memcpy, which stores past the caches."""
    folder = Path(tempfile.mkdtemp(prefix="accel-stream-"))
    source, library = folder / "loop.c", folder / "loop.so"
    source.write_text(_LOOP)
    flags = [
        "-O3",
        "-march=native",
        "-fopenmp",
        "-fno-tree-loop-distribute-patterns",
        "-shared",
        "-fPIC",
    ]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    loop = ctypes.CDLL(str(library))
    os.environ["OMP_NUM_THREADS"] = str(threads)

    def copy(to: np.ndarray, of: np.ndarray) -> None:
        loop.copy(
            ctypes.c_void_p(to.ctypes.data),
            ctypes.c_void_p(of.ctypes.data),
            ctypes.c_size_t(to.size),
        )

    return copy


def numpy_copy(threads: int) -> Callable[[np.ndarray, np.ndarray], None]:
    """A product with 1: `numpy.copyto` is memcpy, which stores past the caches and so moves fewer bytes."""
    pool = ThreadPoolExecutor(threads)

    def copy(to: np.ndarray, of: np.ndarray) -> None:
        parts = [
            slice(len(to) * i // threads, len(to) * (i + 1) // threads)
            for i in range(threads)
        ]
        list(pool.map(lambda part: np.multiply(of[part], 1.0, out=to[part]), parts))

    return copy


def copy_peer(
    copy: Callable[[np.ndarray, np.ndarray], None], size: int
) -> Callable[[], Rates]:
    of, to = np.arange(size // 8, dtype=np.float64), np.zeros(size // 8)

    def measure() -> Rates:
        found = rates(lambda: copy(to, of), 2 * size)
        assert (to == of).all()
        return found

    return measure


def product_peer(
    dtype: type, rows: int, *, by_torch: bool = False
) -> Callable[[], Rates]:
    """A product of numpy's, or of torch's on numpy's memory."""
    left, right = (np.random.rand(rows, rows).astype(dtype) for _ in range(2))
    product = np.empty_like(left)
    if by_torch:
        tensors = [torch.from_numpy(array) for array in (left, right, product)]
        return lambda: rates(
            lambda: torch.matmul(*tensors[:2], out=tensors[2]), 2.0 * rows**3
        )
    return lambda: rates(lambda: np.matmul(left, right, out=product), 2.0 * rows**3)


def main(rounds: int) -> int:
    threads = torch.get_num_threads()
    effort = FULL._replace(seconds=_SECONDS)
    size = round(row_of("copy on the device", effort).work / 2)
    fixed = effort._replace(matrix_max_rows=1024, matrix_seconds=60.0, seconds=_SECONDS)
    peers = [
        (
            "copy on the device",
            "STREAM-like loop in C",
            copy_peer(stream_loop(threads), size),
            effort,
            "B/s",
        ),
        (
            "copy on the device",
            "numpy, times 1",
            copy_peer(numpy_copy(threads), size),
            effort,
            "B/s",
        ),
    ]
    for dtype in (np.float32, np.float64):
        name = np.dtype(dtype).name
        peers.append(
            (
                f"matrix {name}",
                "numpy.matmul",
                product_peer(dtype, 1024),
                fixed,
                "FLOP/s",
            )
        )
        # MKL against OpenBLAS is a difference of its own; this is the same product by another clock.
        peers.append(
            (
                f"matrix {name}",
                "torch.matmul",
                product_peer(dtype, 1024, by_torch=True),
                fixed,
                "FLOP/s",
            )
        )
    print(
        f"{usable_cores()} cores, {threads} threads, load {os.getloadavg()[0]:.1f} before"
    )
    missed = 0
    for title, peer, measure, how, unit in peers:
        pairs = []
        for index in range(rounds):
            # Who goes first changes, so that drift hits both.
            first, second = (partial(ours, title, how), measure)[
                :: -1 if index % 2 else 1
            ]
            pair = (first(), second())
            pairs.append(pair[:: -1 if index % 2 else 1])
        mine, theirs = (
            max(rates.fastest for rates in side) for side in zip(*pairs, strict=True)
        )
        figure, by_median = (
            statistics.median(a[i] / b[i] for a, b in pairs) for i in range(2)
        )
        met = 1 / _BOUND <= figure <= _BOUND
        missed += not met
        verdict, load = f"{'within' if met else 'NOT within'} 15 %", os.getloadavg()[0]
        sides = f"{format_with_prefix(mine, unit):14} {peer:22} {format_with_prefix(theirs, unit):14}"
        print(
            f"{title:20} {sides} {figure:5.2f} {verdict}, by medians {by_median:.2f}, load {load:.1f}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 9))
