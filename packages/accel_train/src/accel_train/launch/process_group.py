"""Start and end a rank.

At the start, the rank selects its device, agrees with the other ranks on the accelerator, creates torch's
process group, and starts the detection of lost ranks.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypedDict

import accel_core
from accel_core.current import overriding_accelerator
from accel_core.errors import AccelError, LaunchError, RankLostError, SettingError
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import import_torch
from accel_core.verdict import How
from accel_train.launch import arguments
from accel_train.launch.agreement import (
    CLOSING,
    AgreementRound,
    OldStoreError,
    Record,
    agree,
)
from accel_train.launch.communication import communication_of
from accel_train.launch.failure_detector import FailureDetector, default_silence
from accel_train.launch.launchers import set_torchrun_variables
from accel_train.launch.rendezvous import (
    Rank,
    Rendezvous,
    first_line,
    is_launched,
    read_rank,
    rendezvous,
)
from accel_train.launch.variables import LOCAL_RANK
from accel_train.staged.ending import wait_for_gloo

try:
    import resource
except ImportError:  # Windows has no limit of open files
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store
    from typing_extensions import Unpack

    from accel_core import Accelerator, Selection

__all__ = ["ProcessGroupOptions", "RankContext", "init_process_group"]


class ProcessGroupOptions(TypedDict, total=False):
    """The options that `init_process_group` passes to the torch function of the same name."""

    group_name: str
    pg_options: Any
    device_id: torch.device | int


class _Chosen(NamedTuple):
    """The accelerator, device and communication backend that this rank has chosen."""

    accelerator: Accelerator
    device_index: int
    #: The name of torch.distributed's backend, such as `"nccl"`.
    communication: str


class RankContext:
    """This process as a rank of a job, with torch's process group.

    Use the object in a `with` statement, or call `shutdown()` at the end. At the end of the block, the object
    waits for all ranks and destroys the process group. If an exception leaves the block, the group is
    destroyed without waiting. If a collective failed because a rank was lost, the collective's exception is
    replaced with a `RankLostError` that names the rank and its host.
    """

    def __init__(
        self,
        rank: Rank,
        chosen: _Chosen,
        server: Store | None,
        detector: FailureDetector,
        timeout: timedelta,
    ) -> None:
        self.rank = rank.rank
        #: This rank's number on its host. Without `LOCAL_RANK`, it is the device's index, or 0 on the CPU.
        self.local_rank = chosen.device_index
        if rank.local_rank is not None:
            self.local_rank = rank.local_rank
        self.world_size = rank.world_size
        self.host = rank.host
        self.accelerator = chosen.accelerator
        #: The name of the communication backend, such as `"nccl"`.
        self.backend = chosen.communication
        #: The device of this rank's tensors.
        self.device: torch.device = _tensor_device(chosen)
        self._server = server
        self._detector = detector
        self._timeout = timeout
        #: Whether torch's process group exists.
        self._has_group = True
        self._process = os.getpid()
        # If a process ends with its group alive, torch warns, and some vendors' libraries hang.
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        return f"<RankContext rank {self.rank} of {self.world_size} on {self.device} over {self.backend}>"

    @property
    def is_main(self) -> bool:
        """Return whether this process is rank 0, the rank that writes files and reports for the job."""
        return self.rank == 0

    def print(self, *values: object, **options: Any) -> None:
        """Print on rank 0 only, and flush the output. `options` are keyword arguments of Python's `print`."""
        if self.is_main:
            options.setdefault("flush", True)
            print(*values, **options)  # noqa: T201 - the user's program prints

    def barrier(self) -> None:
        """Wait until every rank has called this method, and this rank's device has finished its queued work.

        The end of the `with` block also waits for the other ranks, so no barrier is needed right before it.
        """
        torch = import_torch()
        # torch's barrier() is not used: some communication backends reject its `device_ids`, and some
        # require them.
        torch.distributed.all_reduce(torch.zeros(1, device=self.device))
        self.accelerator.synchronize()

    def __enter__(self) -> RankContext:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.shutdown()
        elif self._is_active:
            self._end_with_error(error)

    def shutdown(self) -> None:
        """Wait until every rank has called this method, then destroy the process group.

        On rank 0, the port of the job's store is free afterwards. A second call does nothing. Raises
        `RankLostError` if a rank is lost, ends without calling this method, or does not call this method
        within the timeout.
        """
        if not self._is_active:
            return
        self._mark_store_as_closing()
        try:
            self.accelerator.synchronize()
            self._detector.wait_for_all(self._timeout.total_seconds())
        except BaseException as error:
            self._end_with_error(error)
            raise
        try:
            self._destroy_group()
            self._detector.release_store()
        finally:
            self._server = None
            self._detector.stop()

    @property
    def _is_active(self) -> bool:
        """Return whether the group is alive, and this process is not a forked child of the rank."""
        return self._has_group and os.getpid() == self._process

    def _end_with_error(self, error: BaseException) -> None:
        """End this rank because of `error`, and report the error to the other ranks.

        Raises `RankLostError` if a lost rank caused the error.
        """
        try:
            rank_lost_error = self._detector.explain_or_report(error)
        finally:
            self._end_without_waiting()
        if rank_lost_error is not None:
            raise rank_lost_error from error

    def _at_exit(self) -> None:
        """Destroy the group at the end of a process that has not called `shutdown()`.

        If an uncaught exception ends the process, the exception is first reported to the other ranks.
        """
        # Python stores an uncaught exception here before it calls this function.
        uncaught_error = getattr(sys, "last_value", None)
        if uncaught_error is not None and self._is_active:
            self._detector.explain_or_report(uncaught_error)
        self._end_without_waiting()

    def _end_without_waiting(self) -> None:
        """Stop the heartbeats, destroy the process group and free the port, without waiting."""
        if not self._is_active:
            return
        self._mark_store_as_closing()
        self._detector.stop()
        try:
            self._destroy_group()
        finally:
            self._server = None

    def _mark_store_as_closing(self) -> None:
        """Mark the store as closing, so that the next job does not use it. Only rank 0 may have the store."""
        if self._server is not None:
            self._server.set(CLOSING, "1")

    def _destroy_group(self) -> None:
        """Destroy torch's process group, unless the user has destroyed it."""
        self._has_group = False
        atexit.unregister(self._at_exit)
        distributed = import_torch().distributed
        if distributed.is_initialized():
            wait_for_gloo()
            distributed.destroy_process_group()


def init_process_group(
    backend: str | None = None,
    *,
    timeout: timedelta | float | None = None,
    init_method: str | None = None,
    store: Store | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    single_process: bool = False,
    silence: float | None = None,
    **options: Unpack[ProcessGroupOptions],
) -> RankContext:
    """Make this process a rank: select its device, agree with the other ranks, start torch's process group.

    `backend` is the torch.distributed communication backend. The default is the current accelerator's
    backend, such as `"hccl"`. For a device without collectives, the default is `"staged"`: gloo through host
    memory.

    `timeout`, a `timedelta` or a number of seconds, limits the start, each collective, and the wait at the
    end. `None` means torch's default: 10 minutes for nccl, and 30 minutes for all others. A collective with a
    lost host fails only after this time. `silence` is the number of seconds without a heartbeat after which a
    rank counts as lost: by default 10, and in jobs of more than 2,000 ranks the number of ranks divided by
    200. If such a rank was only busy and sends heartbeats again, it no longer counts as lost, except at the
    end of the job.

    Without `init_method` or `store`, the ranks connect using torchrun's variables. `rank`, `world_size`,
    `init_method`, `store` and `options` are arguments of `torch.distributed.init_process_group`. With
    `single_process`, a job of one rank is started if no launcher started this process and no rank is passed.

    If only one device is visible, the rank uses that device. Otherwise, the rank uses the device with the
    index `LOCAL_RANK`. Without this variable, which `torch.multiprocessing` does not set, the rank uses the
    device with the index `rank` if there are at least as many devices as ranks.

    Raises `InvalidArgumentError`, a `TypeError`, if an argument has a wrong type. Raises `LaunchError` if a
    time is 0 or negative, if a variable is missing, if a process group already exists, or, on rank 0, if the
    port is in use. Raises `RankMismatchError` on every rank if the ranks chose different accelerators,
    versions or communication backends, or if a rank cannot start. Raises `RankLostError` on every rank if a
    rank does not connect, or cannot reach rank 0.
    """
    distributed = import_torch().distributed
    if not distributed.is_available():
        raise LaunchError(
            "this build of torch has no torch.distributed. Install a build with torch.distributed."
        )
    group_timeout = arguments.to_timedelta("timeout", timeout)
    if silence is not None:
        arguments.check_seconds("silence", silence)
    arguments.check_type(
        "backend", backend, str, "a torch.distributed backend, such as 'gloo'"
    )
    arguments.check_type(
        "init_method", init_method, str, "a URL such as 'tcp://host:port'"
    )
    arguments.check_type("rank", rank, int, "this process's rank, an integer from 0")
    arguments.check_type("world_size", world_size, int, "the number of ranks")
    start_timeout = group_timeout or distributed.constants.default_pg_timeout
    if single_process and _is_single_process(rank, init_method, store):
        rank, world_size, store = 0, 1, distributed.HashStore()
    if rank is None and store is None:
        set_torchrun_variables()
    if distributed.is_initialized():
        _report_and_raise_second_group(
            rank, world_size, init_method, store, start_timeout
        )
    needs_address = init_method is None and store is None
    me, local_rank_error = _read_rank_and_local_rank_error(
        rank, world_size, needs_address=needs_address
    )
    start = _connect_and_agree(
        me, init_method, store, start_timeout, backend, local_rank_error
    )
    detector = FailureDetector(
        me.rank,
        start.agreed.hosts,
        silence or default_silence(len(start.agreed.hosts)),
        _connect_heartbeat_store(me, start, start_timeout),
        communication=start.chosen.communication,
    )
    detector.start()
    _start_group(me, start, detector, group_timeout, options)
    server = start.rendezvous.server
    return RankContext(me, start.chosen, server, detector, start_timeout)


def _is_single_process(
    rank: int | None, init_method: str | None, store: Store | None
) -> bool:
    """Return whether this process is the only rank: no argument and no launcher makes it one of several."""
    has_arguments = rank is not None or init_method is not None or store is not None
    return not has_arguments and not is_launched()


def _report_and_raise_second_group(
    rank: int | None,
    world_size: int | None,
    init_method: str | None,
    store: Store | None,
    timeout: timedelta,
) -> NoReturn:
    """Raise the `LaunchError` of a process that already has a process group.

    The other ranks may be waiting for this rank, so this function first reports the error to them.
    """
    error = LaunchError(
        "torch.distributed already has a process group. Call init_process_group() only once."
    )
    needs_address = init_method is None and store is None
    try:
        me, _ = _read_rank_and_local_rank_error(
            rank, world_size, needs_address=needs_address
        )
        report_timeout = min(timeout, _REPORT_TIMEOUT)
        # Because this rank has an error, the call raises an error on every rank.
        _connect_and_agree(
            me, init_method, store, report_timeout, backend=None, own_error=error
        )
    except AccelError as agreement_error:
        raise error from agreement_error
    raise error


def _read_rank_and_local_rank_error(
    rank: int | None, world_size: int | None, *, needs_address: bool
) -> tuple[Rank, AccelError | None]:
    """Return this process's rank, and the error if `LOCAL_RANK` is invalid; otherwise the error is `None`.

    A rank with an invalid `LOCAL_RANK` can still connect to the other ranks, and must report the error to
    them. Raises any other error of `read_rank`.
    """
    try:
        return read_rank(rank, world_size, needs_address=needs_address), None
    except (LaunchError, SettingError) as error:
        with_valid_local_rank = {**os.environ, LOCAL_RANK.name: "0"}
        try:
            me = read_rank(
                rank,
                world_size,
                needs_address=needs_address,
                environ=with_valid_local_rank,
            )
        except (LaunchError, SettingError):  # LOCAL_RANK is not the only problem.
            raise error from None
        return me, error


def _start_group(
    me: Rank,
    start: _Start,
    detector: FailureDetector,
    timeout: timedelta | None,
    options: ProcessGroupOptions,
) -> None:
    """Start torch's process group. Raises `RankLostError` if it failed because a rank was lost."""
    distributed = import_torch().distributed
    group_store = distributed.PrefixStore(
        f"{start.agreed.name}/group", start.rendezvous.store
    )
    try:
        distributed.init_process_group(
            start.chosen.communication,
            store=group_store,
            rank=me.rank,
            world_size=me.world_size,
            timeout=timeout,
            **options,
        )
    except BaseException as error:
        rank_lost_error = detector.explain_or_report(error)
        detector.stop()
        if rank_lost_error is None:
            raise
        raise rank_lost_error from error


#: Whether this process has been a rank of a job; `private_names.had_process_group` reads it.
_had_job = False
#: The time in which a rank that already has a process group tries to report that to the other ranks.
_REPORT_TIMEOUT = timedelta(seconds=10)
#: Seconds that rank 0 needs to close the store of one job and to open the store of the next job.
_REOPEN_SECONDS = 0.1
#: The number of files that a process may have open in addition to its connections, for data loaders and
#: libraries.
_OTHER_FILES = 256


class _Start(NamedTuple):
    """The result of a start on this rank."""

    rendezvous: Rendezvous
    chosen: _Chosen
    agreed: AgreementRound


def _connect_and_agree(
    me: Rank,
    init_method: str | None,
    store: Store | None,
    timeout: timedelta,
    backend: str | None,
    own_error: AccelError | None,
) -> _Start:
    """Connect to the other ranks, choose the accelerator, and check that all ranks made the same choice.

    `own_error` is an error that keeps this rank from starting, or `None` if there is none. With such an
    error, every other rank raises `RankMismatchError`. Raises the same errors as `rendezvous` and `agree`.
    """
    global _had_job
    end = time.monotonic() + timeout.total_seconds()
    # Rank 0 may not have closed the store of the previous job yet. Then this rank tries again.
    may_reach_old_store = _had_job and store is None and me.rank != 0
    if may_reach_old_store:
        time.sleep(_REOPEN_SECONDS)
    while True:
        remaining = timedelta(seconds=max(1.0, end - time.monotonic()))
        try:
            start = _try_to_connect_and_agree(
                me, init_method, store, remaining, backend, own_error
            )
        except AccelError as error:
            is_retry = may_reach_old_store and _may_be_from_old_store(error)
            if not is_retry or time.monotonic() >= end:
                raise
            time.sleep(_REOPEN_SECONDS)
        else:
            _had_job = True
            return start


def _try_to_connect_and_agree(
    me: Rank,
    init_method: str | None,
    store: Store | None,
    timeout: timedelta,
    backend: str | None,
    own_error: AccelError | None,
) -> _Start:
    """Try once to connect, choose and agree. The parameters are those of `_connect_and_agree`."""
    chosen: _Chosen | None = None
    try:
        meeting_point = rendezvous(
            me, init_method, store, timeout, had_earlier_job=_had_job
        )
        if own_error is None:
            chosen, own_error = _choose_device(me, backend)
        if meeting_point.server is not None:
            # Each rank has two connections to rank 0's store: one for torch, and one for the heartbeats.
            _raise_open_files_limit(2 * me.world_size)
        record = _own_record(me, chosen, own_error)
        seconds = timeout.total_seconds()
        agreed = agree(meeting_point.store, record, me.world_size, seconds)
    except AccelError as error:
        if own_error is None:
            raise
        raise error from own_error
    assert chosen is not None  # Otherwise, agree() raises an error on every rank.
    return _Start(meeting_point, chosen, agreed)


def _may_be_from_old_store(error: AccelError) -> bool:
    """Return whether this rank may have reached rank 0's store of an earlier job, which was then closed."""
    network_error = import_torch().distributed.DistNetworkError
    # Not `__cause__`, which may be this rank's own error.
    return isinstance(error, OldStoreError) or isinstance(
        error.__context__, network_error
    )


def _connect_heartbeat_store(me: Rank, start: _Start, timeout: timedelta) -> Store:
    """Connect to the store for the heartbeats, and return it.

    A `TCPStore` gets a separate connection, because torch's long requests block the connection that they use.
    """
    distributed = import_torch().distributed
    shared = start.rendezvous
    store = shared.store
    # Only a `TCPStore` has a host. A single rank sends no heartbeats.
    if shared.host and me.world_size > 1:
        try:
            store = distributed.TCPStore(
                shared.host,
                shared.port,
                is_master=False,
                wait_for_workers=False,
                timeout=timeout,
            )
        except RuntimeError as error:
            raise RankLostError(
                f"{me} cannot connect to the store at {shared} for its heartbeats: {first_line(error)}. Next "
                "step: read what rank 0 printed, and check that rank 0's host can be reached.",
                ranks=(0,),
            ) from error
    heartbeats: Store = distributed.PrefixStore(
        f"{start.agreed.name}/heartbeats", store
    )
    return heartbeats


def _raise_open_files_limit(connections: int) -> None:
    """Raise this process's soft limit of open files if it is too low for `connections` connections."""
    if resource is None:  # Windows
        return
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= needed:
        return
    if hard_limit == resource.RLIM_INFINITY:
        new_limit = needed
    else:
        new_limit = max(soft_limit, min(needed, hard_limit))  # Never a lower limit.
    with suppress(OSError, ValueError):  # A sandbox may forbid a higher limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))


def _choose_device(
    me: Rank, backend: str | None
) -> tuple[_Chosen | None, AccelError | None]:
    """Choose this rank's accelerator, device and communication backend, and select the device.

    Returns either the choice and `None`, or `None` and the error to report to the other ranks.
    """
    try:
        accelerator = accel_core.get_accelerator()
        index = _device_index(me, accelerator)
        communication = communication_of(accelerator, backend)
        accelerator.set_device(index)
    except AccelError as error:
        return None, error
    except Exception as error:
        wrapped = LaunchError(f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return None, wrapped
    return _Chosen(accelerator, index, communication), None


def _device_index(me: Rank, accelerator: Accelerator) -> int:
    """Return the index of this rank's device.

    Raises `LaunchError` if there is no device, if there is no device with the index `LOCAL_RANK`, or if
    `LOCAL_RANK` is not set and there are more ranks than devices.
    """
    if accelerator.device_name() == "cpu":
        return me.local_rank or 0
    count = accelerator.device_count()
    if count == 0:
        raise LaunchError(
            f"{accelerator.name} has no device on this host. To see why, run accel why {accelerator.name}"
        )
    if count == 1:
        return 0  # Only one device is visible.
    if me.local_rank is None:
        if me.world_size <= count:
            return me.rank  # No two ranks get the same device.
        raise LaunchError(
            f"LOCAL_RANK is not set, and the job has {me.world_size} ranks, more than the {count} devices of "
            f"{accelerator.name} on this host, so this rank's device is unknown. Start the script with accel "
            "run, or set LOCAL_RANK."
        )
    if me.local_rank >= count:
        raise LaunchError(
            f"LOCAL_RANK is {me.local_rank}, but {accelerator.name} has {count} devices on this host, 0 "
            f"to {count - 1}. Start at most {count} ranks per host."
        )
    return me.local_rank


def _tensor_device(chosen: _Chosen) -> torch.device:
    """Return the device on which this rank creates tensors, such as `npu:3`. The CPU has no number."""
    if chosen.accelerator.device_name() == "cpu":
        return chosen.accelerator.device()
    return chosen.accelerator.device(chosen.device_index)


def _own_record(
    me: Rank, chosen: _Chosen | None, own_error: AccelError | None
) -> Record:
    """Return the record that this rank sends to rank 0: its choice, or the error that prevents a choice."""
    if chosen is None:
        return Record(me.rank, me.host, problem=str(own_error))
    record = Record(
        rank=me.rank,
        host=me.host,
        backend=chosen.accelerator.name,
        communication=chosen.communication,
        build=_torch_build_kind(chosen),
        # "set by the program", which holds inside `use_accelerator`. Otherwise replaced below.
        selection_reason=How.SET.label,
    )
    provenance = chosen.accelerator.backend.provenance
    if provenance:
        record = record._replace(
            distribution=provenance.distribution, version=provenance.version
        )
    # Inside `use_accelerator`, the process may have no selection, and selection() would make one.
    if overriding_accelerator() is not None:
        return record
    selection = accel_core.selection()
    reasons = {verdict.name: verdict.reason for verdict in selection.verdicts}
    return record._replace(
        selection_reason=_selection_reason(selection),
        rejected={name: reason for name, reason in reasons.items() if reason},
    )


def _torch_build_kind(chosen: _Chosen) -> str:
    """Return the kind of this torch build, such as `"a CUDA build"`.

    Returns an empty string for gloo and MPI, which also connect ranks with different builds.
    """
    build = accel_core.torch_build()
    if build is None or chosen.communication in ("", "gloo", "mpi"):
        return ""
    return build.kind


def _selection_reason(selection: Selection) -> str:
    """Return how the backend was selected, such as `"pinned by DS_ACCELERATOR='npu'"`."""
    name = DS_ACCELERATOR.name
    pin = f"{name}={selection.environ.get(name, '')!r}"
    if selection.how is How.PINNED:
        return f"pinned by {pin}"
    if selection.how is How.PREFERRED:
        return f"the first usable backend in {pin}"
    return selection.how.label
