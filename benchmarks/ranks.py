"""`python -m benchmarks.ranks`: the CPU time of a job of two ranks, by `accel run` and by torchrun.

The script imports torch, makes a gloo group and ends, on the CPU. What is counted is the time of the launcher
and of all that it starts, so that a busy machine changes little.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.harness import COMPILED, Row, in_turns, ratio_row, show

_ROUNDS = 9
_SCRIPT = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
_RANKS = ("--nproc-per-node", "2")


def rows(rounds: int = _ROUNDS) -> list[Row]:
    """What `accel run` takes above torchrun, in seconds and as a ratio."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(_SCRIPT)
        ours = partial(_seconds, "-m", "accel_core", "run", *_RANKS, str(script))
        peer = partial(_seconds, "-m", "torch.distributed.run", *_RANKS, str(script))
        pairs = in_turns(ours, peer, rounds + 1)[1:]  # the first one leaves byte code
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    more = [one - other for one, other in pairs]
    label = "a job of two ranks, CPU time"
    spread = (min(more), max(more))
    above = Row(
        f"{label} above torchrun's",
        "torchrun",
        a,
        b,
        statistics.median(more),
        0.5,
        "s",
        spread,
    )
    return [above, ratio_row(label, "torchrun", pairs, 1.1)]


def _seconds(*arguments: str) -> float:
    """CPU time of the command, and of all that it waited for."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        env={**environ, **COMPILED},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(show("ranks", "The start of two ranks", rows()))
