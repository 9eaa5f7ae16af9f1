"""Measure the bus bandwidth of collectives between ranks on this host.

nccl-tests defines bus bandwidth. The ranks are child processes, which are started and
bound to cores as `accel run` would do it. They rendezvous through a `TCPStore` in this
process. The store is created before the ranks start, so that another program cannot take
its port in the meantime.
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

#: For each collective, the factor for `n` ranks by which bytes per second are multiplied to
#: get the bus bandwidth, the load of one link, which does not depend on `n`:
#: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda _: 1.0,
}
#: How many seconds a rank waits longer than the parent's time limit.
_EXTRA_SECONDS = 30.0
#: The maximum number of calls in a repeat. Each all-reduce makes the numbers larger, and the
#: numbers must stay finite.
_MAX_CALLS = 16
#: The return code of a process that `child.end_all` kills with SIGKILL.
_KILLED = -9


def collectives(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Step]:
    """Return a list with one step, which measures all collectives between `ranks` ranks.

    If `ranks` is `None`, there is one rank per device, but at least two ranks.
    """
    return [Step("collectives", lambda: _measure(accelerator, effort, ranks))]


def _measure(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Measurement]:
    """Return one measurement per collective; a measurement without a value has a reason."""
    try:
        if ranks is None:
            ranks = max(2, accelerator.device_count())
        if ranks < 2:
            reason = "a collective needs at least two ranks"
            return _without_value(Outcome.NOT_MEASURED, reason)
        return _measure_with(accelerator, effort, ranks)
    except (
        AccelError
    ) as error:  # torch.distributed or a communication backend is missing.
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
        # Most vendors' libraries reject two ranks on one device. This is not a failure.
        outcome = Outcome.NOT_MEASURED if is_shared else Outcome.FAILED
        return _without_value(outcome, f"{note}: {_cause(str(error))}")
    return [_row(kind, [a[kind] for a in answers], note) for kind in _BUS_FACTORS]


def _without_value(outcome: Outcome, reason: str) -> list[Measurement]:
    """Return one measurement without a value per collective."""
    return [
        Measurement(f"collective.{kind}", kind, "B/s", outcome, reason=reason)
        for kind in _BUS_FACTORS
    ]


def _cause(problem: str) -> str:
    """Return the line of an error message that states the cause.

    This is the line after "Last error:", or otherwise the first line. torch's messages about
    NCCL begin with the location in C++ code and give the cause after "Last error:".
    """
    first, _, rest = problem.partition("\n")
    _, _, cause = rest.partition("Last error:")
    return cause.strip().partition("\n")[0] or first


def _note(accelerator: Accelerator, ranks: int, *, is_shared: bool) -> str:
    """Describe the number of ranks, their communication backend, and whether they share devices."""
    from accel_train.launch.communication import communication_of

    note = f"{ranks} ranks over {communication_of(accelerator)}"
    if not is_shared:
        return note
    devices = accelerator.device_count()
    return f"{note}, sharing {devices} device{'' if devices == 1 else 's'}"


def _row(kind: str, answers: Sequence[dict[str, Any]], note: str) -> Measurement:
    """Return the measurement of a collective from the answers of all ranks.

    The time of a repeat is the time of its slowest rank. An answer is the dictionary that
    `_time_collective` returns in a rank.
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
    return mark_wrong(row, f"rank {', '.join(wrong)} received wrong data")


# --- Starting the ranks --------------------------------------------------------------


class _RankFailedError(Exception):
    """A rank reported an error, or the rank's process ended without an answer."""


def _run_ranks(
    accelerator: Accelerator, effort: Effort, ranks: int
) -> list[dict[str, Any]]:
    """Run the ranks and return the answer of each rank, a dictionary by collective.

    Raises `LaunchError` if torch was built without torch.distributed, and
    `_RankFailedError` if a rank fails.
    """
    distributed = import_torch().distributed
    if not distributed.is_available():
        raise LaunchError("this build of torch does not include torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # The ranks need the memory that torch has cached since the earlier measurements.
    accelerator.empty_cache()
    jobs = [_job(accelerator, effort, rank, ranks, store.port) for rank in range(ranks)]

    def start(job: dict[str, Any]) -> child.ChildReport:
        report = child.run(_run_rank, job, effort.collective_seconds)
        if report.answer is None or "error" in report.answer:
            child.end_all()  # The other ranks would wait for the failed rank.
        return report

    return _answers(child.run_in_parallel(start, jobs, ranks))


def _answers(reports: Sequence[child.ChildReport]) -> list[dict[str, Any]]:
    """Return the answers of all ranks; raise `_RankFailedError` with the first error."""
    answers = [report.answer for report in reports if report.answer is not None]
    for answer in answers:
        if "error" in answer:
            raise _RankFailedError(str(answer["error"]))
    ended = [rank for rank, report in enumerate(reports) if report.answer is None]
    if ended:
        # Killed ranks come last: they were killed because an earlier rank had failed.
        ended.sort(key=lambda rank: reports[rank].returncode == _KILLED)
        rank, report = ended[0], reports[ended[0]]
        last_line = "".join(report.stderr.splitlines()[-1:])
        raise _RankFailedError(f"rank {rank} {report.ending}. {last_line}".strip())
    return answers


def _job(
    accelerator: Accelerator, effort: Effort, rank: int, ranks: int, port: int
) -> dict[str, Any]:
    """Return the job of one rank, with its number, cores, environment variables and message size."""
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
    per_device = -(-ranks // devices)  # The number of ranks per device is rounded up.
    size = buffer_bytes(accelerator, message * per_device) // per_device
    return {
        "environment": environment,
        "cores": cores,
        "rank": rank,
        "ranks": ranks,
        "port": port,
        "bytes": size // 4 * 4,  # A float32 number has 4 bytes.
        "effort": effort._asdict(),
    }


def _cores(accelerator: Accelerator, rank: int, ranks: int) -> tuple[list[int], int]:
    """Return the rank's CPU cores, which are near its device, and its number of threads.

    The list of cores is empty if the allowed cores are unknown.
    """
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
    """Return the NUMA node of the device, or `None` if the query fails for any reason.

    Without a NUMA node, the rank may use any core.
    """
    from accel_train.launch.cores import numa_node_of

    with contextlib.suppress(Exception):
        return numa_node_of(accelerator.device_properties(index).pci_address)
    return None


# --- In a rank -----------------------------------------------------------------------


def _run_rank(job: dict[str, Any], _stage: Callable[[str], None]) -> dict[str, Any]:
    """Join the process group and time each collective; runs in the child process of a rank.

    Returns the answers of `_time_collective` by collective, or `{"error": message}`.
    """
    from accel_train import init_process_group

    # torch and the vendor's package read variables once, when they are imported.
    os.environ.update(job["environment"])
    if job["cores"]:
        with contextlib.suppress(OSError):  # The cpuset may have changed since.
            os.sched_setaffinity(0, job["cores"])
    effort = Effort(**job["effort"])
    # This timeout exceeds the parent's limit, because the parent reports which rank is late.
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

    Returns a dictionary with `seconds` (a list with the seconds per call of each repeat),
    `calls` (the number of calls in each repeat), `bytes` (`size`) and `right` (whether the
    result of the last call is correct).
    """
    torch = import_torch()
    distributed = torch.distributed
    tensor = torch.empty(size // 4, dtype=torch.float32, device=group.device)
    # The pattern repeats the numbers 1 to 16: small sums stay exact, and a shift is detected.
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

    repeat(1)  # The first call is slower, so it is not counted.
    once = _mean_of_ranks(repeat(1), group)
    calls = min(_MAX_CALLS, max(1, round(effort.repeat_seconds / once)))
    seconds = [repeat(calls) for _ in range(_repeats(calls * once, effort))]
    factor = float(group.world_size) ** calls if kind == "all_reduce" else 1.0
    right = torch.allclose(tensor.to("cpu") / factor, pattern, rtol=1e-4)
    return {"seconds": seconds, "calls": calls, "bytes": size, "right": bool(right)}


def _repeats(seconds: float, effort: Effort) -> int:
    """Return the number of repeats, each of which takes `seconds`.

    On a very slow device, the number may be less than `effort.min_repeats`.
    """
    repeats = max(effort.min_repeats, effort.seconds / seconds)
    most = max(1.0, 4 * effort.seconds / seconds)
    return int(min(effort.max_repeats, repeats, most))


def _seconds_per_call(
    kind: str, tensor: torch.Tensor, calls: int, accelerator: Accelerator
) -> float:
    """Call the collective `calls` times and return the mean seconds per call; above 0."""
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
    """Return the mean of `seconds` over all ranks.

    With the same mean in all ranks, all ranks make the same number of calls.
    """
    torch = import_torch()
    total = torch.full((1,), seconds, dtype=torch.float32, device=group.device)
    torch.distributed.all_reduce(total)
    mean: float = total.item() / group.world_size
    return max(mean, 1e-9)
