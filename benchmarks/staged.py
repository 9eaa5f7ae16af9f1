"""`python -m benchmarks.staged`: the staged process group against gloo on CPU tensors, in two ranks.

The device is simulated (`packages/accel_simulated`; needs g++): its memory is the host's, so a copy to it
costs what a copy in memory does. What is measured is what staging adds to gloo: two copies, and the way
through the group.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from benchmarks.harness import Row, show

_SUPPORT = Path(__file__).parents[1] / "tests" / "support"
#: Bytes of one tensor, and how often it is reduced in a round.
_SIZES = {"4 KiB": (1 << 12, 200), "1 MiB": (1 << 20, 40), "64 MiB": (1 << 26, 3)}
#: Bounds of the ratios; small ones pay for Python where gloo is C++ alone.
_BOUNDS = {"4 KiB": 3.0, "1 MiB": 3.0, "64 MiB": 2.5}
_ROUNDS = 9


def rows() -> list[Row]:
    """A row a size: `all_reduce` that is waited for at once; and one of eight that overlap."""
    sys.path.insert(0, str(_SUPPORT))
    from accel_tests.on_simulated import run_on

    root = str(Path(__file__).parents[1])
    answer = run_on(
        "acme", "benchmarks.staged:measure", processes=2, path=[root], timeout=600
    ).answer
    made = []
    for name, pairs in answer.items():
        ours, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
        figure = statistics.median(a / b for a, b in pairs)
        bound = _BOUNDS[name.split(",")[0]]
        made.append(
            Row(
                f"staged all_reduce, {name}",
                "gloo on the CPU",
                ours,
                peer,
                figure,
                bound,
            )
        )
    return made


def measure() -> dict[str, list[tuple[float, float]]]:
    """In each rank: seconds a call, ours and gloo's, by turns."""
    import torch
    import torch.distributed as dist
    import torch_acme  # noqa: F401 - brings the device

    from accel_core import Backend, TorchAccelerator
    from accel_train.staged import register

    accelerator = TorchAccelerator(Backend(name="acme", priority=1, device_type="acme"))
    accelerator.set_device(int(os.environ["RANK"]))
    register(accelerator)
    torch.set_num_threads(1)
    dist.init_process_group("staged", timeout=timedelta(seconds=300))
    gloo = dist.new_group(backend="gloo")

    def seconds(call: Callable[[], object], number: int) -> float:
        dist.barrier(gloo)
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number

    found = {}
    for name, (size, number) in _SIZES.items():
        host = torch.ones(size // 4)
        device = host.to("acme")
        calls = {
            "": (
                lambda d=device: dist.all_reduce(d),
                lambda h=host: dist.all_reduce(h, group=gloo),
            ),
        }
        if size > 1 << 16:
            parts, hosts = device.chunk(8), host.chunk(8)
            calls[", 8 at once"] = (
                lambda p=parts: _all(p, None),
                lambda h=hosts: _all(h, gloo),
            )
        for what, (ours, peer) in calls.items():
            for call in (ours, peer):
                call()
            pairs = []
            for turn in range(_ROUNDS):
                a_first = turn % 2 == 0
                first = seconds(ours if a_first else peer, number)
                second = seconds(peer if a_first else ours, number)
                pairs.append((first, second) if a_first else (second, first))
            found[name + what] = pairs
    dist.destroy_process_group()
    return found


def _all(parts: object, group: object) -> None:
    import torch.distributed as dist

    for work in [dist.all_reduce(part, group=group, async_op=True) for part in parts]:  # type: ignore[attr-defined]
        work.wait()


if __name__ == "__main__":
    print(json.dumps({"load before": os.getloadavg()[0]}))
    sys.exit(show("staged", "The staged process group", rows()))
