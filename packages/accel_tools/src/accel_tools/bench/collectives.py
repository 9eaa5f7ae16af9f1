"""Bandwidth of collectives between ranks on this host, as nccl-tests defines it.

The ranks are child processes, started and bound to cores as `accel run` would. They meet in a store in this
process, which exists before they start, so no other program can take its port in the meantime.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from accel_core import hardware
from accel_core.errors import AccelError, LaunchError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.interface.devices import missing_defaults
from accel_core.sandbox import child
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import import_torch
from accel_tools.bench.copies import buffer_bytes, in_bytes, on_host
from accel_tools.bench.records import Effort, Measurement, Outcome, Step
from accel_tools.bench.timing import Samples, measured, wrong

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["collectives"]

#: Each with its bus bandwidth as a share of bytes by time, of `n` ranks: what a link carries, whatever `n`.
#: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
_KINDS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda _: 1.0,
}
#: Seconds after the parent's limit at which a rank gives up by itself.
_LATER = 30.0
#: Calls in a repeat at most: each sum makes the numbers larger, which must stay numbers.
_MOST_CALLS = 16


def collectives(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Step]:
    """Return one step that starts `ranks` ranks; `None` means one for each device, and at least two."""
    return [Step("collectives", lambda: _rows(accelerator, effort, ranks))]


def _rows(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Measurement]:
    try:
        count = max(2, accelerator.device_count()) if ranks is None else ranks
        if count < 2:
            return _without(
                Outcome.NOT_MEASURED, "one rank has no other rank to send to"
            )
        shared = not on_host(accelerator) and accelerator.device_count() < count
        how = _how(accelerator, count, shared=shared)
        answers, problem = _run(accelerator, effort, count)
    except AccelError as error:  # no communication backend, no torch.distributed
        return _without(Outcome.NOT_MEASURED, _cause(str(error)))
    except PLUGIN_ERRORS as error:
        return _without(Outcome.FAILED, _cause(root_cause(error)))
    if problem:
        # Most vendors' libraries refuse two ranks on one device, which is no fault of anybody's.
        outcome = Outcome.NOT_MEASURED if shared else Outcome.FAILED
        return _without(outcome, f"{how}: {_cause(problem)}")
    return [_row(kind, [answer[kind] for answer in answers], how) for kind in _KINDS]


def _without(outcome: Outcome, reason: str) -> list[Measurement]:
    return [
        Measurement(f"collective.{kind}", kind, "B/s", outcome, reason=reason)
        for kind in _KINDS
    ]


def _cause(problem: str) -> str:
    """Give one line: torch names the place in NCCL's C++ first, and the cause after "Last error:"."""
    first, _, rest = problem.partition("\n")
    return rest.partition("Last error:")[2].strip().partition("\n")[0] or first


def _how(accelerator: Accelerator, count: int, *, shared: bool) -> str:
    from accel_train.launch.communication import communication_of

    how = f"{count} ranks over {communication_of(accelerator)}"
    if not shared:
        return how
    there = accelerator.device_count()
    return f"{how} on {there} device{'' if there == 1 else 's'}, which they share"


def _row(kind: str, answers: list[dict[str, Any]], how: str) -> Measurement:
    """A collective is over when the last rank has it: of each repeat the slowest rank counts."""
    seconds = tuple(
        max(repeat) for repeat in zip(*(a["seconds"] for a in answers), strict=True)
    )
    first, size = answers[0], answers[0]["bytes"]
    samples = Samples(seconds, first["calls"], 0)
    work = size * _KINDS[kind](len(answers))
    row = measured(
        f"collective.{kind}", kind, "B/s", samples, work, in_bytes(size), how
    )
    at_fault = [str(rank) for rank, answer in enumerate(answers) if not answer["right"]]
    if not at_fault:
        return row
    return wrong(row, f"rank {', '.join(at_fault)} received other data than was sent")


# --- starting the ranks --------------------------------------------------------------------------------


def _run(
    accelerator: Accelerator, effort: Effort, count: int
) -> tuple[list[dict[str, Any]], str]:
    """Run the ranks: return what each measured, or nothing and the reason."""
    distributed = import_torch().distributed
    if not distributed.is_available():
        raise LaunchError("this build of torch has no torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    accelerator.empty_cache()  # the ranks want the memory that the measurements before have given back
    jobs = [_job(accelerator, effort, rank, count, store.port) for rank in range(count)]

    def start(job: dict[str, Any]) -> child.ChildReport:
        report = child.run(_rank, job, effort.patience)
        if report.answer is None or "error" in report.answer:
            child.end_all()  # the others would wait for it
        return report

    with ThreadPoolExecutor(count) as pool:
        try:
            reports = list(pool.map(start, jobs))
        except (
            BaseException
        ):  # above all Ctrl-C, which the children, sessions of their own, do not hear
            child.end_all()
            raise
    answers = [report.answer for report in reports]
    failed = [
        (rank, report) for rank, report in enumerate(reports) if report.answer is None
    ]
    told = [
        answer["error"]
        for answer in answers
        if answer is not None and "error" in answer
    ]
    if told:
        return [], str(told[0])
    if failed:
        # Who was ended by us died of SIGKILL, and is not the one to blame.
        rank, report = next((f for f in failed if f[1].returncode != -9), failed[0])
        last = report.stderr.splitlines()[-1:] or [""]
        return [], f"rank {rank} {report.ending}. {last[0]}".strip()
    return [answer for answer in answers if answer is not None], ""


def _job(
    accelerator: Accelerator, effort: Effort, rank: int, count: int, port: int
) -> dict[str, Any]:
    """Make the job of one rank: its place, its cores, its variables."""
    from accel_train.launch.communication import communication_of
    from accel_train.launch.environment import pin_of
    from accel_train.launch.plan import assign_cores
    from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND

    is_host = on_host(accelerator)
    there = 1 if is_host else accelerator.device_count()
    near = [
        None if is_host else _node(accelerator, index % there) for index in range(count)
    ]
    allowed = hardware.allowed_cores()
    share = (
        assign_cores(near, allowed, quota=hardware.cgroup_cpu_quota())[rank]
        if allowed
        else None
    )
    environment = missing_defaults(accelerator.backend, os.environ)
    environment |= {
        DS_ACCELERATOR.name: pin_of(accelerator),
        ACCEL_COMMUNICATION_BACKEND.name: communication_of(accelerator),
        "LOCAL_RANK": str(rank if is_host else rank % there),
        "LOCAL_SIZE": str(count),
    }
    if share is not None and not os.environ.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = str(share.threads)
    message = effort.message_host if is_host else effort.message_device
    sharers = -(-count // there)
    return {
        "environment": environment,
        "cores": list(share.ids) if share else [],
        "rank": rank,
        "ranks": count,
        "port": port,
        "bytes": buffer_bytes(accelerator, message * sharers) // sharers // 4 * 4,
        "effort": effort._asdict(),
    }


def _node(accelerator: Accelerator, index: int) -> int | None:
    """The NUMA node of the device; `None` whatever goes wrong: the rank is spread then."""
    from accel_train.launch.cores import numa_node_of

    with suppress(Exception):
        return numa_node_of(accelerator.device_properties(index).pci_address)
    return None


# --- in a rank -----------------------------------------------------------------------------------------


def _rank(job: dict[str, Any], _say: Callable[[str], None]) -> dict[str, Any]:
    """In the child: join the others, and time each collective."""
    from accel_train import init_process_group

    os.environ.update(
        job["environment"]
    )  # before torch and the vendor are loaded, who read it once
    if job["cores"]:
        with contextlib.suppress(
            OSError
        ):  # the cpuset has changed since: it runs where it may
            os.sched_setaffinity(0, job["cores"])
    effort = Effort(**job["effort"])
    # Longer than the parent waits, which says which rank it was.
    patience = timedelta(seconds=effort.patience + _LATER)
    try:
        distributed = import_torch().distributed
        store = distributed.TCPStore(
            "127.0.0.1", job["port"], is_master=False, timeout=patience
        )
        with init_process_group(
            store=store, rank=job["rank"], world_size=job["ranks"], timeout=patience
        ) as me:
            return {kind: _timed(kind, me, job["bytes"], effort) for kind in _KINDS}
    except PLUGIN_ERRORS as error:
        return {
            "error": str(error) if isinstance(error, AccelError) else root_cause(error)
        }


def _timed(kind: str, me: Any, size: int, effort: Effort) -> dict[str, Any]:
    """Repeats of one collective, as many in every rank, and whether the last gave the right numbers."""
    torch = import_torch()
    distributed = torch.distributed
    tensor = torch.empty(size // 4, dtype=torch.float32, device=me.device)
    #: 1 to 16, again and again: sums of these stay exact for a while, and a shift shows.
    pattern = (torch.arange(size // 4) % 16 + 1).to(torch.float32)
    ours = pattern.to(me.device)

    def repeat(calls: int) -> float:
        tensor.copy_(ours)
        if kind == "broadcast" and me.rank:
            tensor.zero_()
        me.accelerator.synchronize()
        distributed.barrier()
        me.accelerator.synchronize()
        return _seconds(kind, tensor, calls, me.accelerator)

    repeat(1)
    once = _agreed(repeat(1), me)
    calls = min(_MOST_CALLS, max(1, round(effort.span / once)))
    repeats = int(min(effort.most, max(effort.least, effort.seconds / (calls * once))))
    if repeats * calls * once > 4 * effort.seconds:
        repeats = max(1, int(4 * effort.seconds / (calls * once)))
    seconds = [repeat(calls) for _ in range(repeats)]
    factor = float(me.world_size) ** calls if kind == "all_reduce" else 1.0
    right = torch.allclose(tensor.to("cpu") / factor, pattern, rtol=1e-4)
    return {"seconds": seconds, "calls": calls, "bytes": size, "right": bool(right)}


def _seconds(
    kind: str, tensor: torch.Tensor, calls: int, accelerator: Accelerator
) -> float:
    """Seconds a call."""
    distributed = import_torch().distributed
    start = time.perf_counter()
    for _ in range(calls):
        if kind == "all_reduce":
            distributed.all_reduce(tensor)
        else:
            distributed.broadcast(tensor, 0)
    accelerator.synchronize()
    return max(time.perf_counter() - start, 1e-9) / calls


def _agreed(seconds: float, me: Any) -> float:
    """The ranks' mean, so that all make the same number of calls."""
    torch = import_torch()
    told = torch.full((1,), seconds, dtype=torch.float32, device=me.device)
    torch.distributed.all_reduce(told)
    mean: float = told.item() / me.world_size
    return max(mean, 1e-9)
