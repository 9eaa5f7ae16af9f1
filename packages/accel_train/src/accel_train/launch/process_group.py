"""Start and end a rank: its device, the agreement, torch's process group, and the detection of lost ranks."""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import accel_core
from accel_core.current import overriding
from accel_core.errors import AccelError, LaunchError, RankLostError, SettingError
from accel_core.settings import DS_ACCELERATOR
from accel_core.torch_import import import_torch
from accel_train.launch import arguments
from accel_train.launch.agreement import CLOSING, OldStoreError, Record, Round, agree
from accel_train.launch.communication import communication_of
from accel_train.launch.failure_detector import FailureDetector
from accel_train.launch.launchers import adopt_launcher
from accel_train.launch.rendezvous import Meeting, Rank, is_launched, meet, read_rank
from accel_train.launch.variables import LOCAL_RANK
from accel_train.staged.ending import wait_for_gloo

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store
    from typing_extensions import Unpack

    from accel_core import Accelerator, Selection

__all__ = ["ProcessGroupOptions", "RankContext", "init_process_group"]


class ProcessGroupOptions(TypedDict, total=False):
    """Options that `init_process_group` passes to torch's function of that name."""

    group_name: str
    pg_options: Any
    device_id: torch.device | int


class _Chosen(NamedTuple):
    """This rank's accelerator, device and communication backend."""

    accelerator: Accelerator
    device_index: int
    communication: str


class RankContext:
    """A rank with its process group; use it in `with`, or call `shutdown()` at the end.

    Leaving the block waits for all ranks and destroys the process group. If an exception leaves the block,
    nothing is waited for, with one exception: if a collective failed because a rank was lost, its error
    becomes a `RankLostError` that names the rank and its host.
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
        #: This rank's number on its host; where no launcher says it, its device's, and 0 on the CPU.
        self.local_rank = (
            chosen.device_index if rank.local_rank is None else rank.local_rank
        )
        self.world_size = rank.world_size
        self.host = rank.host
        self.accelerator = chosen.accelerator
        #: Name of torch.distributed's backend: `"nccl"`.
        self.backend = chosen.communication
        #: Where this rank's tensors live.
        self.device: torch.device = _device(chosen)
        self._server = server
        self._detector = detector
        self._timeout = timeout
        self._active = True
        self._process = os.getpid()
        # torch complains, and some vendors' libraries hang, when a process ends with its group alive.
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        return f"<RankContext rank {self.rank} of {self.world_size} on {self.device} over {self.backend}>"

    @property
    def is_main(self) -> bool:
        """Return whether this is rank 0 of the job, which writes files and reports."""
        return self.rank == 0

    def print(self, *values: object, **options: Any) -> None:
        """Print on rank 0 only, without buffering. `options` are those of Python's `print`."""
        if self.is_main:
            print(*values, **{"flush": True, **options})  # noqa: T201 - the program's own words

    def barrier(self) -> None:
        """Wait until every rank has called this and this rank's device has finished its work.

        The end of the `with` block waits for the others in any case.
        """
        torch = import_torch()
        # Not torch's own barrier: some communication backends refuse its `device_ids`, and others want them.
        torch.distributed.all_reduce(torch.zeros(1, device=self.device))
        self.accelerator.synchronize()

    def __enter__(self) -> RankContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.shutdown()
        elif self._is_active:
            self._fail(error)

    def shutdown(self) -> None:
        """Wait until every rank has called this, and destroy the process group; a second call does nothing.

        When it returns on rank 0, the port at which the ranks met is free. Raises `RankLostError` if a rank
        is lost, has left before, or does not call this within the timeout.
        """
        if not self._is_active:
            return
        self._announce_closing()
        try:
            self.accelerator.synchronize()
            self._detector.gather(self._timeout.total_seconds())
        except BaseException as error:
            self._fail(error)
            raise
        try:
            self._destroy_group()
            self._detector.release_store()
        finally:
            self._server = None
            self._detector.stop()

    @property
    def _is_active(self) -> bool:
        """Whether the group is alive, and is this process's: a forked child has no part in it."""
        return self._active and os.getpid() == self._process

    def _fail(self, error: BaseException) -> None:
        """End by an error, which the others learn of. Raises the loss that is behind it, if one is."""
        try:
            loss = self._detector.explain(error)
        finally:
            self._destroy()
        if loss is not None:
            raise loss from error

    def _at_exit(self) -> None:
        """The process ends without `with` and without `shutdown()`, perhaps by an exception."""
        error = getattr(sys, "last_value", None)
        if error is not None and self._is_active:
            self._detector.explain(error)
        self._destroy()

    def _destroy(self) -> None:
        """Stop the heartbeats, destroy the process group and free the port, without waiting for the end."""
        if not self._is_active:
            return
        self._announce_closing()
        self._detector.stop()
        try:
            self._destroy_group()
        finally:
            self._server = None

    def _announce_closing(self) -> None:
        """If this rank holds the store, mark it: the next job must not begin in it."""
        if self._server is not None:
            self._server.set(CLOSING, "1")

    def _destroy_group(self) -> None:
        self._active = False
        atexit.unregister(self._at_exit)
        distributed = import_torch().distributed
        if distributed.is_initialized():  # the user may have destroyed it
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
    silence: float = 10.0,
    **options: Unpack[ProcessGroupOptions],
) -> RankContext:
    """Make this process a rank: select its device, agree with the others, start torch's process group.

    `backend`: the communication backend of torch.distributed; by default the current accelerator's
    (`"hccl"`), or `"staged"`, through host memory over gloo, for a device without collectives of its own. The
    device is number `LOCAL_RANK`, or the only visible one. If that variable is not set
    (`torch.multiprocessing` sets none) and there are as many devices as ranks, it is number `rank`. Without
    `init_method` or `store`, the ranks meet through torchrun's variables. `single_process`: if no launcher
    started this process and no rank is given, it is a job of one rank. `timeout`, a `timedelta` or seconds,
    limits the start, each collective and the end; `None` means torch's own, 30 minutes, or 10 for nccl. A
    collective with a lost host ends only after this time. `silence`: seconds without a heartbeat from a rank
    before it counts as lost. A rank that only was busy may come back, but not at the end.
    `options` are further arguments of `torch.distributed.init_process_group`.

    Raises `InvalidArgumentError`, a `TypeError`, for an argument of another type. Raises `LaunchError` for a
    time of 0 or less, if a variable is missing, if a process group exists already, or, on rank 0, if the port
    is taken. Raises `RankMismatchError` on every rank if the ranks chose different accelerators, versions or
    communication backends, or if one of them cannot start. Raises `RankLostError` on every rank if a rank
    does not arrive, or cannot reach rank 0.
    """
    torch = import_torch()
    distributed = torch.distributed
    if not distributed.is_available():
        raise LaunchError(
            "this build of torch has no torch.distributed. Install a build that has it."
        )
    given = arguments.duration("timeout", timeout)
    arguments.seconds("silence", silence)
    arguments.of_type(
        "backend", backend, str, "a name of torch.distributed's, such as 'gloo'"
    )
    arguments.of_type(
        "init_method", init_method, str, "a URL such as 'tcp://host:port'"
    )
    arguments.of_type("rank", rank, int, "this process's number, from 0")
    arguments.of_type("world_size", world_size, int, "the number of ranks")
    wait = given or distributed.constants.default_pg_timeout
    if (
        single_process
        and rank is None
        and store is None
        and init_method is None
        and not is_launched()
    ):
        rank, world_size, store = 0, 1, distributed.HashStore()
    if rank is None and store is None:
        adopt_launcher()
    there = None
    if (
        distributed.is_initialized()
    ):  # the others wait for this rank: it tells them before it raises
        there = LaunchError(
            "torch.distributed already has a process group. Call init_process_group() only once."
        )
        wait = min(wait, _TELLING)
    try:
        me, fault = _read_rank(
            rank, world_size, rendezvous=store is None and init_method is None
        )
        meeting, chosen, agreed = _start_together(
            me, init_method, store, wait, backend, there or fault
        )
    except AccelError as error:
        if there is None:
            raise
        raise there from error
    detector = FailureDetector(
        me.rank,
        agreed.hosts,
        silence,
        _own_connection(me, agreed, meeting, wait),
        library=chosen.communication,
    )
    detector.start()
    try:
        distributed.init_process_group(
            chosen.communication,
            store=distributed.PrefixStore(f"{agreed.name}/group", meeting.store),
            rank=me.rank,
            world_size=me.world_size,
            timeout=given,
            **options,
        )
    except BaseException as error:
        loss = detector.explain(error)
        detector.stop()
        if loss is None:
            raise
        raise loss from error
    return RankContext(me, chosen, meeting.server, detector, wait)


def _read_rank(
    rank: int | None, world_size: int | None, *, rendezvous: bool
) -> tuple[Rank, AccelError | None]:
    """This process's place, and what is wrong with it that does not keep it from telling the others."""
    try:
        return read_rank(rank, world_size, rendezvous=rendezvous), None
    except (LaunchError, SettingError) as error:
        sound = {**os.environ, LOCAL_RANK.name: "0"}
        try:
            return read_rank(
                rank, world_size, rendezvous=rendezvous, environ=sound
            ), error
        except (
            LaunchError,
            SettingError,
        ):  # more is wrong than LOCAL_RANK, and the others cannot be met
            raise error from None


#: Whether this process was in a job before.
_again = False
#: The longest that a rank which has a group already tries to reach the others, to tell them.
_TELLING = timedelta(seconds=10)
#: Seconds in which rank 0 closes the store of one job, before it opens that of the next.
_REOPENING = 0.1
#: Open files of a process besides the connections of its store: a data loader's, the libraries'.
_OTHER_FILES = 256


def _start_together(
    me: Rank,
    init_method: str | None,
    store: Store | None,
    wait: timedelta,
    backend: str | None,
    fault: AccelError | None,
) -> tuple[Meeting, _Chosen, Round]:
    """Meet the others, choose, and agree."""
    global _again
    end = time.monotonic() + wait.total_seconds()
    may_meet_old_store = _again and store is None and me.rank != 0
    if may_meet_old_store:
        time.sleep(_REOPENING)
    while True:
        left = timedelta(seconds=max(1.0, end - time.monotonic()))
        chosen, problem = None, fault
        try:
            meeting = meet(me, init_method, store, left, again=_again)
            if problem is None:
                chosen, problem = _choose(me, backend)
            if meeting.server is not None:
                _allow_connections(2 * me.world_size)
            record = _record(me, chosen, problem)
            agreed = agree(meeting.store, record, me.world_size, left.total_seconds())
        except BaseException as error:
            if (
                may_meet_old_store
                and _is_about_old_store(error)
                and time.monotonic() < end
            ):
                time.sleep(_REOPENING)
                continue
            if problem is None or not isinstance(error, AccelError):
                raise
            raise error from problem
        _again = True
        assert chosen is not None
        return meeting, chosen, agreed


def _is_about_old_store(error: BaseException) -> bool:
    """Whether what was reached may have been rank 0's store of an earlier job, which then was closed."""
    network = import_torch().distributed.DistNetworkError
    return isinstance(error, OldStoreError) or isinstance(error.__cause__, network)


def _own_connection(
    me: Rank, agreed: Round, meeting: Meeting, wait: timedelta
) -> Store:
    """Return the store for the heartbeats: no request of torch's may hold them up."""
    distributed = import_torch().distributed
    store = meeting.store
    if meeting.host and me.world_size > 1:
        try:
            store = distributed.TCPStore(
                meeting.host,
                meeting.port,
                is_master=False,
                wait_for_workers=False,
                timeout=wait,
            )
        except RuntimeError as error:
            raise RankLostError(
                f"{me} cannot connect to the store at {meeting} for its heartbeats: "
                f"{str(error).splitlines()[0].rstrip('.')}. See what rank 0 printed, and that its host can "
                "be reached.",
                ranks=(0,),
            ) from error
    heartbeats: Store = distributed.PrefixStore(f"{agreed.name}/heartbeats", store)
    return heartbeats


def _allow_connections(count: int) -> None:
    """Raise this process's soft limit of open files, if so many connections do not fit."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    needed = count + _OTHER_FILES
    if soft == unlimited or soft >= needed:
        return
    most = needed if hard == unlimited else min(needed, hard)
    with suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _choose(me: Rank, backend: str | None) -> tuple[_Chosen | None, AccelError | None]:
    """This rank's accelerator, device and communication backend, or why it has none: the others must know."""
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
    count = accelerator.device_count()
    if accelerator.device_name() == "cpu":
        return me.local_rank or 0
    if count == 1:
        return 0  # the launcher shows each rank one device, or there is one
    if count == 0:
        raise LaunchError(
            f"{accelerator.name} has no device here. See: accel why {accelerator.name}"
        )
    if me.local_rank is None:
        if (
            me.world_size <= count
        ):  # wherever the others are, no two on a host have one number
            return me.rank
        raise LaunchError(
            f"LOCAL_RANK is not set, and {accelerator.name} has {count} devices for {me.world_size} ranks: "
            "this rank's is not known. Start the script with accel run, or set LOCAL_RANK."
        )
    if me.local_rank >= count:
        raise LaunchError(
            f"LOCAL_RANK is {me.local_rank}, but {accelerator.name} has {count} devices here (0 to "
            f"{count - 1}): start at most {count} ranks on this host"
        )
    return me.local_rank


def _device(chosen: _Chosen) -> torch.device:
    accelerator = chosen.accelerator
    return (
        accelerator.device()
        if accelerator.device_name() == "cpu"
        else accelerator.device(chosen.device_index)
    )


def _record(me: Rank, chosen: _Chosen | None, problem: AccelError | None) -> Record:
    if chosen is None:
        return Record(me.rank, me.host, problem=str(problem))
    # What `use_accelerator` set is no choice of the process's, which is not made for its sake.
    selection = None if overriding() else accel_core.selection()
    provenance = chosen.accelerator.backend.provenance
    return Record(
        rank=me.rank,
        host=me.host,
        backend=chosen.accelerator.name,
        distribution=provenance.distribution if provenance else "",
        version=provenance.version if provenance else "",
        communication=chosen.communication,
        build=_build_of(chosen),
        how=_HOW[selection.how.value].format(asked=_asked(selection))
        if selection
        else _HOW["set"],
        others={v.name: v.reason for v in selection.verdicts if v.reason}
        if selection
        else {},
    )


def _build_of(chosen: _Chosen) -> str:
    """Return the kind of torch build that the communication needs; empty for gloo, which every build has."""
    build = accel_core.torch_build()
    is_shared = chosen.communication in ("", "gloo", "mpi")
    return build.kind if build is not None and not is_shared else ""


def _asked(selection: Selection) -> str:
    name = DS_ACCELERATOR.name
    return f"{name}={selection.environ.get(name, '')!r}"


_HOW = {
    "pinned": "pinned by {asked}",
    "preferred": "from the list {asked}",
    "ranked": "as the usable backend with the highest priority",
    "fallback": "as nothing that ranks higher is usable",
    "set": "set by the program",
}
