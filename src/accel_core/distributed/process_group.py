"""Start and end of a rank: the device, the agreement, torch's process group, and the watch on the others."""

from __future__ import annotations

import atexit
import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from accel_core import current
from accel_core._support.torch_import import import_torch
from accel_core.distributed import arguments
from accel_core.distributed.agreement import Record, agree, depart_last
from accel_core.distributed.communication import communication_of
from accel_core.distributed.rendezvous import Rank, meet, read_rank, second_connection
from accel_core.distributed.watch import Watch
from accel_core.errors import AccelError, LaunchError, RankLostError

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store
    from typing_extensions import Unpack

    from accel_core.accelerators.interface import Accelerator

__all__ = ["ProcessGroupOptions", "RankContext", "init_process_group"]


class ProcessGroupOptions(TypedDict, total=False):
    """What `init_process_group` passes on to torch's."""

    group_name: str
    pg_options: Any
    device_id: torch.device | int


class _Chosen(NamedTuple):
    """What this rank runs on."""

    accelerator: Accelerator
    device_index: int
    communication: str


class RankContext:
    """A rank with its process group; use it in `with`, or call `shutdown()` at the end.

    Leaving the block waits for all ranks and destroys the process group. When an exception leaves it,
    nothing is waited for, except that a collective that failed because a rank was lost becomes a
    `RankLostError` that names the rank and its host.
    """

    def __init__(self, rank: Rank, chosen: _Chosen, store: Store, watch: Watch, timeout: timedelta) -> None:
        self.rank = rank.rank
        #: This rank's number on its host; 0 where no launcher says it.
        self.local_rank = rank.local_rank or 0
        self.world_size = rank.world_size
        self.host = rank.host
        self.accelerator = chosen.accelerator
        #: Name of torch.distributed's backend: `"nccl"`.
        self.backend = chosen.communication
        #: Where this rank's tensors live.
        self.device: torch.device = _device(chosen)
        self._store = store
        self._watch = watch
        self._timeout = timeout
        self._active = True
        # torch complains, and some vendors' libraries hang, when a process ends with its group alive.
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        return f"<RankContext rank {self.rank} of {self.world_size} on {self.device} over {self.backend}>"

    def __enter__(self) -> RankContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.shutdown()
            return
        if not self._active:
            return
        try:
            loss = self._watch.explain(error)
        finally:
            self._destroy()
        if loss is not None:
            raise loss from error

    def shutdown(self) -> None:
        """Wait until every rank has come here, and destroy the process group; a second call does nothing.

        Raises `RankLostError` when a rank does not come within the timeout.
        """
        if not self._active:
            return
        try:
            self.accelerator.synchronize()
            self._gather()
        finally:
            self._destroy()

    def _gather(self) -> None:
        """A barrier in the store: it needs no device, and can say who is missing."""
        store = self._store
        store.set(f"leaving/{self.rank}", "")
        if store.add("leaving", 1) == self.world_size:
            store.set("all-leaving", "")
        interval = timedelta(seconds=self._watch.interval)
        end = time.monotonic() + self._timeout.total_seconds()
        while True:
            try:
                store.wait(["all-leaving"], interval)
                break
            except RuntimeError as error:
                if self._watch.trouble or time.monotonic() > end:
                    raise self._watch.loss() or self._missing() from error
        if self.rank == 0:
            depart_last(store, "left", self.world_size, patience=5)
        else:
            store.add("left", 1)

    def _missing(self) -> RankLostError:
        """The error for ranks that live and beat, and do not come to the end."""
        absent = [r for r in range(self.world_size) if not self._store.check([f"leaving/{r}"])]
        return RankLostError(
            f"rank {self.rank} (host {self.host}) waited {self._timeout.total_seconds():g} s at the end for "
            f"{', '.join(f'rank {r}' for r in absent)}: still at work, or it left without shutdown()",
            ranks=tuple(absent),
        )

    def _at_exit(self) -> None:
        """The process ends without `with` and without `shutdown()`, perhaps by an exception."""
        error = getattr(sys, "last_value", None)
        if error is not None:
            self._watch.explain(error)
        self._destroy()

    def _destroy(self) -> None:
        """Stop the watch and destroy the process group, without waiting for anybody."""
        if not self._active:
            return
        self._active = False
        atexit.unregister(self._at_exit)
        self._watch.stop()
        distributed = import_torch().distributed
        if distributed.is_initialized():  # the user may have destroyed it
            distributed.destroy_process_group()


def init_process_group(
    backend: str | None = None,
    *,
    timeout: timedelta | float | None = None,
    init_method: str | None = None,
    store: Store | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    silence: float = 10.0,
    **options: Unpack[ProcessGroupOptions],
) -> RankContext:
    """Make this process a rank: select its device, agree with the others, start torch's process group.

    `backend`: of torch.distributed; by default what the current accelerator says (`"hccl"`), `"staged"` for
    a device without collectives of its own: through host memory, over gloo. The device is
    `LOCAL_RANK`'s, or the only one that is visible. Without `init_method` or `store` the ranks meet through
    torchrun's variables. `timeout`, a `timedelta` or seconds, is for the start, for each collective and for
    the end (torch's own, 30 minutes or 10 for nccl, when `None`): a lost host ends a collective no sooner. A
    rank that is not heard of for `silence` seconds is reported as lost. `options` are what else
    `torch.distributed.init_process_group` takes.

    Raises `InvalidArgumentError`, a `TypeError`, for an argument of another type; `LaunchError` for a time
    that is none, when a variable is missing, a group is there already or, on rank 0, the port is taken; and,
    on every rank, `RankMismatchError` when the ranks chose different accelerators, versions or communication
    backends, or one of them cannot start, and `RankLostError` when a rank does not come.
    """
    torch = import_torch()
    distributed = torch.distributed
    if not distributed.is_available():
        raise LaunchError("this build of torch has no torch.distributed. Install one that has.")
    if distributed.is_initialized():
        raise LaunchError("torch.distributed has a process group already. Call init_process_group() once.")
    given = arguments.duration("timeout", timeout)
    arguments.seconds("silence", silence)
    arguments.of_type("backend", backend, str, "a name of torch.distributed's, such as 'gloo'")
    arguments.of_type("init_method", init_method, str, "a URL such as 'tcp://host:port'")
    arguments.of_type("rank", rank, int, "this process's number, from 0")
    arguments.of_type("world_size", world_size, int, "the number of ranks")
    me = read_rank(rank, world_size, rendezvous=store is None and init_method is None)
    wait = given or distributed.constants.default_pg_timeout
    met, address = meet(me, init_method, store, wait)

    chosen, problem = _choose(me, backend)
    try:
        name, hosts = agree(met, _record(me, chosen, problem), me.world_size, wait.total_seconds())
    except AccelError as error:
        if problem is None:
            raise
        raise error from problem
    assert chosen is not None
    ours = distributed.PrefixStore(name, met)
    # A connection of its own: one that waits in a collective's set-up would hold up the beats.
    beats = distributed.PrefixStore(name, second_connection(met, silence))
    watch = Watch(beats, me.rank, hosts, silence, address)
    watch.start()
    try:
        distributed.init_process_group(
            chosen.communication,
            store=distributed.PrefixStore("group", ours),
            rank=me.rank,
            world_size=me.world_size,
            timeout=given,
            **options,
        )
    except BaseException as error:
        loss = watch.explain(error)
        watch.stop()
        if loss is None:
            raise
        raise loss from error
    return RankContext(me, chosen, ours, watch, wait)


def _choose(me: Rank, backend: str | None) -> tuple[_Chosen | None, AccelError | None]:
    """This rank's accelerator, device and communication backend, or why it has none: the others must know."""
    try:
        accelerator = current.get_accelerator()
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
        raise LaunchError(f"{accelerator.name} has no device here: see accel why {accelerator.name}")
    if me.local_rank is None:
        raise LaunchError(
            f"LOCAL_RANK is not set, and {accelerator.name} has {count} devices: which one is this rank's? "
            "Start the script with accel run, or set LOCAL_RANK."
        )
    if me.local_rank >= count:
        raise LaunchError(
            f"LOCAL_RANK is {me.local_rank}, and {accelerator.name} has {count} devices here (0 to "
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
    selection = current.selection()
    provenance = chosen.accelerator.backend.provenance
    return Record(
        rank=me.rank,
        host=me.host,
        backend=chosen.accelerator.name,
        distribution=provenance.distribution if provenance else "",
        version=provenance.version if provenance else "",
        communication=chosen.communication,
        how=_HOW[selection.how.value].format(pin=selection.environ.get("DS_ACCELERATOR", "")),
        others={v.name: v.reason for v in selection.verdicts if v.reason},
    )


_HOW = {
    "pinned": "pinned by DS_ACCELERATOR={pin!r}",
    "preferred": "from the list DS_ACCELERATOR={pin!r}",
    "ranked": "as the highest-ranking usable one",
    "fallback": "as nothing that ranks higher is usable",
    "set": "set by the program",
}
