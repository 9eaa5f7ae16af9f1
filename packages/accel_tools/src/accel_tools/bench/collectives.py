"""Bandwidth of collectives between ranks on this host, as nccl-tests defines it.

The ranks are child processes, started and bound to cores as `accel run` would. They meet
in a store in this process, which exists before they start, so that no other program can
take its port in the meantime.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from accel_core import hardware
from accel_core.errors import AccelError, LaunchError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.interface.devices import missing_defaults
from accel_core.sandbox import child
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import import_torch
from accel_tools.bench.copies import buffer_bytes, in_bytes, is_on_host
from accel_tools.bench.records import Effort, Measurement, Outcome, Step
from accel_tools.bench.timing import Samples, make_measurement, mark_wrong

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["collectives"]

#: Each collective's bus bandwidth as a multiple of bytes by time, for `n` ranks: the load of
#: a link, whatever `n`: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda _: 1.0,
}
#: Seconds after the parent's limit at which a rank gives up by itself.
_EXTRA_SECONDS = 30.0
#: Calls in a repeat: each sum makes the numbers larger, and they must stay finite.
_MAX_CALLS = 16
#: The exit status of a process that `child.end_all` ends: SIGKILL.
_KILLED = -9


def collectives(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Step]:
    """Return one step that starts `ranks` ranks; `None` means one for each device, and at least two."""
    return [Step("collectives", lambda: _measure(accelerator, effort, ranks))]


def _measure(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Measurement]:
    """Return a row for each collective, with a reason if it has no value."""
    try:
        if ranks is None:
            ranks = max(2, accelerator.device_count())
        if ranks < 2:
            reason = "one rank has no other rank to send to"
            return _without_value(Outcome.NOT_MEASURED, reason)
        return _measure_with(accelerator, effort, ranks)
    except AccelError as error:  # no communication backend, no torch.distributed
        return _without_value(Outcome.NOT_MEASURED, _cause(str(error)))
    except PLUGIN_ERRORS as error:
        return _without_value(Outcome.FAILED, _cause(root_cause(error)))


def _measure_with(
    accelerator: Accelerator, effort: Effort, ranks: int
) -> list[Measurement]:
    is_shared = not is_on_host(accelerator) and accelerator.device_count() < ranks
    note = _note(accelerator, ranks, is_shared=is_shared)
    try:
        answers = _run_ranks(accelerator, effort, ranks)
    except _RankFailedError as error:
        # Most vendors' libraries reject two ranks on one device, which is not a fault.
        outcome = Outcome.NOT_MEASURED if is_shared else Outcome.FAILED
        return _without_value(outcome, f"{note}: {_cause(str(error))}")
    return [_row(kind, [a[kind] for a in answers], note) for kind in _BUS_FACTORS]


def _without_value(outcome: Outcome, reason: str) -> list[Measurement]:
    """Return a row without a value for each collective."""
    return [
        Measurement(f"collective.{kind}", kind, "B/s", outcome, reason=reason)
        for kind in _BUS_FACTORS
    ]


def _cause(problem: str) -> str:
    """Return one line of an error: after "Last error:" if there is one, else the first.

    torch has the place in NCCL's C++ in the first line.
    """
    first, _, rest = problem.partition("\n")
    _, _, cause = rest.partition("Last error:")
    return cause.strip().partition("\n")[0] or first


def _note(accelerator: Accelerator, ranks: int, *, is_shared: bool) -> str:
    """Return the number of ranks, their backend, and whether they share devices."""
    from accel_train.launch.communication import communication_of

    note = f"{ranks} ranks over {communication_of(accelerator)}"
    if not is_shared:
        return note
    devices = accelerator.device_count()
    return f"{note} on {devices} device{'' if devices == 1 else 's'}, which they share"


def _row(kind: str, answers: Sequence[dict[str, Any]], note: str) -> Measurement:
    """Return the row of a collective; in each repeat the slowest rank counts.

    An answer is what `_time_collective` returns in a rank.
    """
    by_repeat = zip(*(answer["seconds"] for answer in answers), strict=True)
    seconds = tuple(max(of_ranks) for of_ranks in by_repeat)
    size = answers[0]["bytes"]
    samples = Samples(seconds, answers[0]["calls"], 0)
    work = size * _BUS_FACTORS[kind](len(answers))
    name = f"collective.{kind}"
    row = make_measurement(name, kind, "B/s", samples, work, in_bytes(size), note)
    wrong = [str(rank) for rank, answer in enumerate(answers) if not answer["right"]]
    if not wrong:
        return row
    return mark_wrong(row, f"rank {', '.join(wrong)} received other data than was sent")


# --- Starting the ranks --------------------------------------------------------------


class _RankFailedError(Exception):
    """A rank reported an error, or its process ended."""


def _run_ranks(
    accelerator: Accelerator, effort: Effort, ranks: int
) -> list[dict[str, Any]]:
    """Run the ranks and return the answer of each, by collective.

    Raises `LaunchError` if torch has no torch.distributed, and `_RankFailedError`.
    """
    distributed = import_torch().distributed
    if not distributed.is_available():
        raise LaunchError("this build of torch has no torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # The ranks need the memory that earlier measurements have freed.
    accelerator.empty_cache()
    jobs = [_job(accelerator, effort, rank, ranks, store.port) for rank in range(ranks)]

    def start(job: dict[str, Any]) -> child.ChildReport:
        report = child.run(_run_rank, job, effort.collective_seconds)
        if report.answer is None or "error" in report.answer:
            child.end_all()  # the other ranks would wait for it
        return report

    return _answers(child.run_in_parallel(start, jobs, ranks))


def _answers(reports: Sequence[child.ChildReport]) -> list[dict[str, Any]]:
    """Return the answers of all ranks; raises `_RankFailedError` with the first error."""
    answers = [report.answer for report in reports if report.answer is not None]
    for answer in answers:
        if "error" in answer:
            raise _RankFailedError(str(answer["error"]))
    ended = [rank for rank, report in enumerate(reports) if report.answer is None]
    if ended:
        # A killed rank was ended because of another one's failure.
        ended.sort(key=lambda rank: reports[rank].returncode == _KILLED)
        rank, report = ended[0], reports[ended[0]]
        last_line = "".join(report.stderr.splitlines()[-1:])
        raise _RankFailedError(f"rank {rank} {report.ending}. {last_line}".strip())
    return answers


def _job(
    accelerator: Accelerator, effort: Effort, rank: int, ranks: int, port: int
) -> dict[str, Any]:
    """Return the job of one rank: its place, its cores, its variables, its bytes."""
    from accel_train.launch.communication import communication_of
    from accel_train.launch.environment import pin_of
    from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND

    on_host = is_on_host(accelerator)
    devices = 1 if on_host else accelerator.device_count()
    environment = missing_defaults(accelerator.backend, os.environ)
    environment |= {
        DS_ACCELERATOR.name: pin_of(accelerator),
        ACCEL_COMMUNICATION_BACKEND.name: communication_of(accelerator),
        "LOCAL_RANK": str(rank if on_host else rank % devices),
        "LOCAL_SIZE": str(ranks),
    }
    cores, threads = _cores(accelerator, rank, ranks)
    if cores and not os.environ.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = str(threads)
    message = effort.message_host_bytes if on_host else effort.message_device_bytes
    per_device = -(-ranks // devices)  # ranks that share a device, rounded up
    size = buffer_bytes(accelerator, message * per_device) // per_device
    return {
        "environment": environment,
        "cores": cores,
        "rank": rank,
        "ranks": ranks,
        "port": port,
        "bytes": size // 4 * 4,  # whole float32 numbers
        "effort": effort._asdict(),
    }


def _cores(accelerator: Accelerator, rank: int, ranks: int) -> tuple[list[int], int]:
    """Return the rank's cores, near its device, and its threads; no cores if unknown."""
    from accel_train.launch.plan import assign_cores

    allowed = hardware.allowed_cores()
    if not allowed:
        return [], 0
    nodes: list[int | None] = [None] * ranks
    if not is_on_host(accelerator):
        devices = accelerator.device_count()
        nodes = [_numa_node(accelerator, index % devices) for index in range(ranks)]
    quota = hardware.cgroup_cpu_quota()
    share = assign_cores(nodes, allowed, quota=quota)[rank]
    return list(share.ids), share.threads


def _numa_node(accelerator: Accelerator, index: int) -> int | None:
    """Return the NUMA node of the device; `None` on any error: the rank may then use any cores."""
    from accel_train.launch.cores import numa_node_of

    with contextlib.suppress(Exception):
        return numa_node_of(accelerator.device_properties(index).pci_address)
    return None


# --- In a rank -----------------------------------------------------------------------


def _run_rank(job: dict[str, Any], _stage: Callable[[str], None]) -> dict[str, Any]:
    """In the child: join the other ranks, and time each collective; return the timings or an error."""
    from accel_train import init_process_group

    # Before the import of torch and the vendor's package, which read variables once.
    os.environ.update(job["environment"])
    if job["cores"]:
        with contextlib.suppress(OSError):  # the cpuset has changed since
            os.sched_setaffinity(0, job["cores"])
    effort = Effort(**job["effort"])
    # Longer than the parent's limit, because the parent reports which rank is late.
    timeout = timedelta(seconds=effort.collective_seconds + _EXTRA_SECONDS)
    try:
        distributed = import_torch().distributed
        store = distributed.TCPStore(
            "127.0.0.1", job["port"], is_master=False, timeout=timeout
        )
        with init_process_group(
            store=store, rank=job["rank"], world_size=job["ranks"], timeout=timeout
        ) as group:
            return {
                kind: _time_collective(kind, group, job["bytes"], effort)
                for kind in _BUS_FACTORS
            }
    except AccelError as error:
        return {"error": str(error)}
    except PLUGIN_ERRORS as error:
        return {"error": root_cause(error)}


def _time_collective(
    kind: str, group: Any, size: int, effort: Effort
) -> dict[str, Any]:
    """Time one collective of `size` bytes, with the same number of repeats in every rank.

    Returns `seconds` (of one call, by repeat), `calls` (in each repeat), `bytes`, and
    `right`: whether the last result is right.
    """
    torch = import_torch()
    distributed = torch.distributed
    tensor = torch.empty(size // 4, dtype=torch.float32, device=group.device)
    # 1 to 16 repeated: sums stay exact for a while, and shifted data is visible.
    pattern = (torch.arange(size // 4) % 16 + 1).to(torch.float32)
    on_device = pattern.to(group.device)

    def repeat(calls: int) -> float:
        tensor.copy_(on_device)
        if kind == "broadcast" and group.rank:
            tensor.zero_()
        group.accelerator.synchronize()
        distributed.barrier()
        group.accelerator.synchronize()
        return _seconds_per_call(kind, tensor, calls, group.accelerator)

    repeat(1)  # to warm up
    once = _mean_of_ranks(repeat(1), group)
    calls = min(_MAX_CALLS, max(1, round(effort.repeat_seconds / once)))
    seconds = [repeat(calls) for _ in range(_repeats(calls * once, effort))]
    factor = float(group.world_size) ** calls if kind == "all_reduce" else 1.0
    right = torch.allclose(tensor.to("cpu") / factor, pattern, rtol=1e-4)
    return {"seconds": seconds, "calls": calls, "bytes": size, "right": bool(right)}


def _repeats(seconds: float, effort: Effort) -> int:
    """Return how many repeats of so many seconds each to make; few on a very slow device."""
    repeats = max(effort.min_repeats, effort.seconds / seconds)
    most = max(1.0, 4 * effort.seconds / seconds)
    return int(min(effort.max_repeats, repeats, most))


def _seconds_per_call(
    kind: str, tensor: torch.Tensor, calls: int, accelerator: Accelerator
) -> float:
    distributed = import_torch().distributed
    start = time.perf_counter()
    for _ in range(calls):
        if kind == "all_reduce":
            distributed.all_reduce(tensor)
        else:
            distributed.broadcast(tensor, 0)
    accelerator.synchronize()
    return max(time.perf_counter() - start, 1e-9) / calls


def _mean_of_ranks(seconds: float, group: Any) -> float:
    """Return the mean over all ranks, so that all of them make the same number of calls."""
    torch = import_torch()
    total = torch.full((1,), seconds, dtype=torch.float32, device=group.device)
    torch.distributed.all_reduce(total)
    mean: float = total.item() / group.world_size
    return max(mean, 1e-9)
