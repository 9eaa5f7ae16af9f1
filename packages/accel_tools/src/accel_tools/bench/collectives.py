"""Measure the bus bandwidth of collectives between ranks on this host.

nccl-tests defines bus bandwidth. The ranks are child processes, which are started and bound to cores as
`accel run` does it. They rendezvous through a `TCPStore` in this process. The store is created before the
ranks start, so that no other program can take its port in the meantime.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import hardware
from accel_core.cli import page
from accel_core.errors import AccelError, LaunchError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.interface.devices import missing_defaults
from accel_core.sandbox import child
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import import_torch
from accel_tools.bench.copies import buffer_size, is_on_host
from accel_tools.bench.records import Effort, Measurement, Outcome, Step
from accel_tools.bench.timing import Samples, make_measurement, mark_wrong
from accel_tools.bench.units import format_bytes

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator
    from accel_train.launch.plan import Cores

__all__ = ["collective_steps"]

#: For each collective, a function of the number of ranks. Bytes per second times its result is the bus
#: bandwidth, the load of one link, which does not depend on the number of ranks:
#: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
_BUS_FACTOR_BY_COLLECTIVE: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda _: 1.0,
}
#: How many seconds longer than the parent's time limit a rank waits.
_EXTRA_SECONDS = 30.0
#: The maximum number of calls in a repeat. Each all-reduce makes the numbers larger, and the
#: numbers must stay finite.
_MAX_CALLS = 16
#: The return code of a process that `child.end_all` kills with SIGKILL.
_KILLED = -9
#: The size in bytes of a float32 number.
_FLOAT32_BYTES = 4


class RankTiming(NamedTuple):
    """The timing of one collective on one rank."""

    #: The seconds per call, one number for each repeat.
    seconds: list[float]
    #: The number of calls in each repeat.
    calls: int
    #: The size of the tensor in bytes.
    bytes: int
    #: Whether the result of the last call is correct.
    is_correct: bool


#: The timings of one rank, by the name of the collective.
RankTimings = dict[str, RankTiming]


def collective_steps(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Step]:
    """Return a list with one benchmark step, which measures all collectives between `ranks` ranks.

    If `ranks` is `None`, there is one rank per device, but at least two ranks.
    """
    return [Step("collectives", lambda: _measure(accelerator, effort, ranks))]


def _measure(
    accelerator: Accelerator, effort: Effort, ranks: int | None
) -> list[Measurement]:
    """Measure all collectives, and return one measurement per collective.

    A measurement without a value has a reason.
    """
    try:
        if ranks is None:
            ranks = max(2, accelerator.device_count())
        if ranks < 2:
            reason = "a collective needs at least two ranks"
            return _measurements_without_values(Outcome.NOT_MEASURED, reason)
        return _measure_with_ranks(accelerator, effort, ranks)
    except AccelError as error:
        # torch.distributed or a communication backend is missing.
        return _measurements_without_values(
            Outcome.NOT_MEASURED, _line_with_cause(str(error))
        )
    except PLUGIN_ERRORS as error:
        return _measurements_without_values(
            Outcome.FAILED, _line_with_cause(root_cause(error))
        )


def _measure_with_ranks(
    accelerator: Accelerator, effort: Effort, ranks: int
) -> list[Measurement]:
    """Start the ranks, and return one measurement per collective."""
    shares_devices = not is_on_host(accelerator) and accelerator.device_count() < ranks
    note = _describe_ranks_and_backend(
        accelerator, ranks, shares_devices=shares_devices
    )
    try:
        timings_of_ranks = _run_ranks(accelerator, effort, ranks)
    except _RankFailedError as error:
        # Most vendors' libraries reject two ranks on one device. This is not a failure.
        outcome = Outcome.NOT_MEASURED if shares_devices else Outcome.FAILED
        return _measurements_without_values(
            outcome, f"{note}: {_line_with_cause(str(error))}"
        )
    measurements = []
    for collective in _BUS_FACTOR_BY_COLLECTIVE:
        timings = [timings_of_rank[collective] for timings_of_rank in timings_of_ranks]
        measurements.append(_combine_ranks(collective, timings, note))
    return measurements


def _measurements_without_values(outcome: Outcome, reason: str) -> list[Measurement]:
    """Return one measurement per collective, with the reason why its value is missing."""
    measurements = []
    for collective in _BUS_FACTOR_BY_COLLECTIVE:
        name = f"collective.{collective}"
        measurements.append(
            Measurement(name, collective, "B/s", outcome, reason=reason)
        )
    return measurements


def _line_with_cause(message: str) -> str:
    """Return the line of an error message that states the cause.

    This is the line after "Last error:", or otherwise the first line. torch's messages about
    NCCL begin with the location in C++ code and give the cause after "Last error:".
    """
    # NCCL writes the cause on the line after "Last error:".
    first_line, _, other_lines = message.partition("\n")
    _, _, last_error = other_lines.partition("Last error:")
    cause = last_error.strip().partition("\n")[0]
    return cause or first_line


def _describe_ranks_and_backend(
    accelerator: Accelerator, ranks: int, *, shares_devices: bool
) -> str:
    """Describe the number of ranks, their communication backend, and whether they share devices."""
    from accel_train.launch.communication import communication_of

    description = f"{ranks} ranks over {communication_of(accelerator)}"
    if shares_devices:
        description += f", sharing {page.count(accelerator.device_count(), 'device')}"
    return description


def _combine_ranks(
    collective: str, timings: Sequence[RankTiming], note: str
) -> Measurement:
    """Return the measurement of a collective, combined from the timings of all ranks.

    The timings are in the order of the ranks. The time of a repeat is the time of its slowest rank.
    """
    # A collective takes as long as its slowest rank.
    seconds_by_rank = [timing.seconds for timing in timings]
    slowest = []
    for seconds_of_repeat in zip(*seconds_by_rank, strict=True):
        slowest.append(max(seconds_of_repeat))
    size = timings[0].bytes
    # `total` is used only to check kernel launches.
    samples = Samples(tuple(slowest), timings[0].calls, total=0)
    bus_factor = _BUS_FACTOR_BY_COLLECTIVE[collective](len(timings))
    measurement = make_measurement(
        f"collective.{collective}",
        collective,
        "B/s",
        samples,
        work=size * bus_factor,
        size=format_bytes(size),
        note=note,
    )
    wrong_ranks = []
    for rank, timing in enumerate(timings):
        if not timing.is_correct:
            wrong_ranks.append(str(rank))
    if wrong_ranks:
        reason = f"rank {', '.join(wrong_ranks)} received wrong data"
        return mark_wrong(measurement, reason)
    return measurement


# --- Starting the ranks --------------------------------------------------------------


class _RankFailedError(Exception):
    """A rank reported an error, or the rank's process ended without a result."""


def _run_ranks(
    accelerator: Accelerator, effort: Effort, ranks: int
) -> list[RankTimings]:
    """Run the ranks in child processes, and return the timings of each rank.

    Raises `LaunchError` if torch was built without torch.distributed, and
    `_RankFailedError` if a rank fails.
    """
    distributed = import_torch().distributed
    if not distributed.is_available():
        raise LaunchError("this build of torch does not include torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # The ranks need the memory that torch has cached since the earlier measurements.
    accelerator.empty_cache()
    jobs = [
        _job_for_rank(accelerator, effort, rank, ranks, store.port)
        for rank in range(ranks)
    ]

    def run_rank(job: dict[str, Any]) -> child.ChildReport:
        report = child.run(_time_collectives_in_child, job, effort.collective_seconds)
        if report.answer is None or "error" in report.answer:
            child.end_all()  # The other ranks would wait for the failed rank.
        return report

    return _read_timings(child.run_in_parallel(run_rank, jobs, ranks))


def _read_timings(reports: Sequence[child.ChildReport]) -> list[RankTimings]:
    """Return the timings of all ranks.

    Raises `_RankFailedError` with the first error if a rank failed.
    """
    answers = [report.answer for report in reports if report.answer is not None]
    for answer in answers:
        if "error" in answer:
            raise _RankFailedError(str(answer["error"]))
    failed_rank = _rank_that_failed_first(reports)
    if failed_rank is not None:
        report = reports[failed_rank]
        lines = report.stderr.splitlines()
        last_line = lines[-1] if lines else ""
        message = f"rank {failed_rank} {report.ending}. {last_line}"
        raise _RankFailedError(message.strip())
    timings_of_ranks = []
    for answer in answers:
        timings = {
            collective: RankTiming(**answer[collective]) for collective in answer
        }
        timings_of_ranks.append(timings)
    return timings_of_ranks


def _rank_that_failed_first(reports: Sequence[child.ChildReport]) -> int | None:
    """Return the rank whose process failed by itself, or `None` if all processes succeeded.

    The other ranks are killed after this rank has failed.
    """
    failed_ranks = []
    for rank, report in enumerate(reports):
        if report.answer is None:
            failed_ranks.append(rank)
    for rank in failed_ranks:
        if reports[rank].returncode != _KILLED:
            return rank
    if failed_ranks:  # Another program killed a rank, for example the kernel.
        return failed_ranks[0]
    return None


def _job_for_rank(
    accelerator: Accelerator, effort: Effort, rank: int, ranks: int, port: int
) -> dict[str, Any]:
    """Return the argument of `_time_collectives_in_child` for one rank, as plain values.

    The job has the rank's number, its CPU cores and environment variables, and the size of the tensor.
    """
    from accel_train.launch.communication import communication_of
    from accel_train.launch.environment import pin_of
    from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND

    on_host = is_on_host(accelerator)
    device_count = 1 if on_host else accelerator.device_count()
    environment = missing_defaults(accelerator.backend, os.environ)
    environment |= {
        DS_ACCELERATOR.name: pin_of(accelerator),
        ACCEL_COMMUNICATION_BACKEND.name: communication_of(accelerator),
        # A rank uses the device with this index. Ranks share the devices if there are more ranks.
        "LOCAL_RANK": str(rank if on_host else rank % device_count),
        "LOCAL_SIZE": str(ranks),
    }
    cores = _cores_of_rank(accelerator, rank, ranks)
    if cores is not None and not os.environ.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = str(cores.threads)
    message_size = effort.message_host_bytes if on_host else effort.message_device_bytes
    ranks_per_device = math.ceil(ranks / device_count)
    # The tensors of all ranks on a device must fit into its memory.
    size_for_device = buffer_size(accelerator, message_size * ranks_per_device)
    numbers_per_rank = size_for_device // ranks_per_device // _FLOAT32_BYTES
    return {
        "environment": environment,
        "cores": list(cores.ids) if cores is not None else [],
        "rank": rank,
        "ranks": ranks,
        "port": port,
        "bytes": numbers_per_rank * _FLOAT32_BYTES,
        "effort": effort._asdict(),
    }


def _cores_of_rank(accelerator: Accelerator, rank: int, ranks: int) -> Cores | None:
    """Return the rank's CPU cores, which are near its device, and its number of threads.

    Returns `None` if the cores that this process may use are unknown.
    """
    from accel_train.launch.plan import assign_cores

    allowed = hardware.allowed_cores()
    if not allowed:
        return None
    # The NUMA node of each rank's device. A rank on the CPU has none.
    nodes: list[int | None] = [None] * ranks
    if not is_on_host(accelerator):
        devices = accelerator.device_count()
        nodes = [_numa_node(accelerator, index % devices) for index in range(ranks)]
    quota = hardware.cgroup_cpu_quota()
    cores_by_rank = assign_cores(nodes, allowed, quota=quota)
    return cores_by_rank[rank]


def _numa_node(accelerator: Accelerator, index: int) -> int | None:
    """Return the NUMA node of the device, or `None` if the query fails for any reason.

    Without a NUMA node, the rank may use any core.
    """
    from accel_train.launch.cores import numa_node_of

    with contextlib.suppress(Exception):  # A vendor's package may raise any error.
        return numa_node_of(accelerator.device_properties(index).pci_address)
    return None


# --- In a rank -----------------------------------------------------------------------


def _time_collectives_in_child(
    job: dict[str, Any], _stage: Callable[[str], None]
) -> dict[str, Any]:
    """Join the process group and time each collective.

    Runs in a rank's child process. Returns the fields of a `RankTiming` by collective, or `{"error":
    message}`. `job` is a result of `_job_for_rank`.
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
            timings = {}
            for collective in _BUS_FACTOR_BY_COLLECTIVE:
                timing = _time_collective(collective, group, job["bytes"], effort)
                timings[collective] = timing._asdict()
            return timings
    except AccelError as error:
        return {"error": str(error)}
    except PLUGIN_ERRORS as error:
        return {"error": root_cause(error)}


def _time_collective(
    collective: str, group: Any, size: int, effort: Effort
) -> RankTiming:
    """Time one collective of a float32 tensor of `size` bytes, in one rank.

    All ranks of the process group must call this function, and all make the same number of calls.
    """
    torch = import_torch()
    distributed = torch.distributed
    count = size // _FLOAT32_BYTES
    tensor = torch.empty(count, dtype=torch.float32, device=group.device)
    # The pattern repeats the numbers 1 to 16: small sums stay exact, and a shift is detected.
    pattern = (torch.arange(count) % 16 + 1).to(torch.float32)
    pattern_on_device = pattern.to(group.device)

    def time_repeat(calls: int) -> float:
        tensor.copy_(pattern_on_device)
        if collective == "broadcast" and group.rank != 0:
            tensor.zero_()  # The numbers must come from rank 0.
        group.accelerator.synchronize()
        distributed.barrier()
        group.accelerator.synchronize()
        return _seconds_per_call(collective, tensor, calls, group.accelerator)

    time_repeat(calls=1)  # The first call is slower, so it is not counted.
    seconds_per_call = _mean_of_ranks(time_repeat(calls=1), group)
    calls = round(effort.repeat_seconds / seconds_per_call)
    calls = min(_MAX_CALLS, max(1, calls))
    repeats = _number_of_repeats(calls * seconds_per_call, effort)
    seconds = [time_repeat(calls) for _ in range(repeats)]
    factor = 1.0
    if collective == "all_reduce":
        # Each call multiplies the tensor, which is the same in all ranks, by their number.
        factor = float(group.world_size) ** calls
    is_correct = torch.allclose(tensor.to("cpu") / factor, pattern, rtol=1e-4)
    return RankTiming(seconds, calls, size, bool(is_correct))


def _number_of_repeats(repeat_seconds: float, effort: Effort) -> int:
    """Return the number of repeats, each of which takes `repeat_seconds`.

    On a very slow device, the number may be less than `effort.min_repeats`.
    """
    repeats_in_time = effort.seconds / repeat_seconds
    desired = min(effort.max_repeats, max(effort.min_repeats, repeats_in_time))
    # Even the minimum number of repeats may take at most four times as long.
    limit = max(1.0, 4 * repeats_in_time)
    return int(min(desired, limit))


def _seconds_per_call(
    collective: str, tensor: torch.Tensor, calls: int, accelerator: Accelerator
) -> float:
    """Call the collective `calls` times, and return the mean seconds per call, which is above 0."""
    distributed = import_torch().distributed
    start = time.perf_counter()
    for _ in range(calls):
        if collective == "all_reduce":
            distributed.all_reduce(tensor)
        else:
            distributed.broadcast(tensor, 0)
    accelerator.synchronize()
    elapsed = time.perf_counter() - start
    return max(elapsed, 1e-9) / calls  # A coarse clock may not have advanced.


def _mean_of_ranks(seconds: float, group: Any) -> float:
    """Return the mean over all ranks of their values of `seconds`; the mean is above 0.

    Because the mean is the same in all ranks, all ranks make the same number of calls.
    """
    torch = import_torch()
    total = torch.full((1,), seconds, dtype=torch.float32, device=group.device)
    torch.distributed.all_reduce(total)  # The tensor now has the sum of all ranks.
    mean: float = total.item() / group.world_size
    return max(mean, 1e-9)
