"""This process's rank, from torchrun's variables, and the store in which all ranks meet."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from accel_core.errors import LaunchError, RankLostError
from accel_core.torch_import import import_torch
from accel_train.launch.launchers import launched_by
from accel_train.launch.variables import (
    LOCAL_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    RANK,
    WORLD_SIZE,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["Meeting", "Rank", "is_launched", "meet", "read_rank"]


class Rank(NamedTuple):
    """The place of one process in a job."""

    rank: int
    world_size: int
    #: Its number on its host; `None` where nothing says so.
    local_rank: int | None
    host: str

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host})"


def read_rank(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    rendezvous: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Rank:
    """Return this process's rank from torchrun's variables; `rank` and `world_size` override them.

    `rendezvous`: the ranks meet through `MASTER_ADDR` and `MASTER_PORT`, so these must be set too. `environ`:
    the variables; by default this process's. Raises `LaunchError` that names all missing variables, and
    `SettingError` for a value that is not a number.
    """
    env = os.environ if environ is None else environ
    needed = [RANK.name] if rank is None else []
    needed += [WORLD_SIZE.name] if world_size is None else []
    needed += [LOCAL_RANK.name] if rendezvous and rank is None else []
    needed += [MASTER_ADDR.name, MASTER_PORT.name] if rendezvous else []
    missing = [name for name in needed if not env.get(name, "").strip()]
    if missing:
        raise LaunchError(_not_a_rank(missing, env))
    if rendezvous:
        MASTER_PORT.read(env)  # its complaint is clearer than torch's
    place = Rank(
        rank=RANK.read(env) if rank is None else rank,
        world_size=WORLD_SIZE.read(env) if world_size is None else world_size,
        local_rank=LOCAL_RANK.read(env)
        if env.get(LOCAL_RANK.name, "").strip()
        else None,
        host=socket.gethostname(),
    )
    if not 0 <= place.rank < place.world_size:
        raise LaunchError(
            f"rank {place.rank} of {place.world_size} ranks: expected 0 to {place.world_size - 1}"
        )
    return place


def _not_a_rank(missing: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return a message on variables that are not set, with what sets them."""
    verb = "is" if len(missing) == 1 else "are"
    which = f"{', '.join(missing)} {verb} not set"
    launcher = launched_by(environ)
    if launcher is not None:
        return (
            f"{which}: {launcher.name} started this process as rank {environ[launcher.rank]} and does not "
            f"tell it. Set {' and '.join(missing)} for all ranks; MASTER_ADDR is the host of rank 0."
        )
    return (
        f"{which}: this process was not started as a rank, and single_process=True does not say that it may "
        "run alone. Start the script with accel run (or torchrun), on one host: accel run train.py"
    )


def is_launched() -> bool:
    """Return whether a launcher made this process a rank: torchrun, MPI's or Slurm's."""
    for variable in (RANK, WORLD_SIZE):
        if os.environ.get(variable.name, "").strip():
            return True
    return launched_by(os.environ) is not None


class Meeting(NamedTuple):
    """The store in which all ranks meet."""

    #: This rank's connection.
    store: Store
    #: Rank 0's own store, which listens as long as this is referred to; nothing else may hold it. Elsewhere,
    #: and where the store is not ours: nothing.
    server: Store | None
    #: Where the store is; no host for a store that is none of TCP's.
    host: str | None
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else "the store that was given"


def meet(
    me: Rank,
    init_method: str | None,
    store: Store | None,
    timeout: timedelta,
    *,
    again: bool = False,
) -> Meeting:
    """Return the store that all ranks share.

    `again`: this process was in an earlier job. Raises `LaunchError` if rank 0 cannot listen at the address,
    and `RankLostError` if the other ranks do not come.
    """
    if store is not None:
        return Meeting(store, None, *_place(store))
    distributed = import_torch().distributed
    method = init_method or "env://"
    with _meeting_errors(me, method, timeout, again):
        met: Store = next(
            distributed.rendezvous(method, me.rank, me.world_size, timeout=timeout)
        )[0]
        met.set_timeout(timeout)
        host, port = _place(met)
        if me.rank != 0 or not isinstance(met, distributed.TCPStore):
            return Meeting(met, None, host, port)
        # A group holds its store for as long as anybody, a model say, holds the group. What it gets is a
        # connection, so that the port is free when we say so.
        connection: Store = distributed.TCPStore(
            host, port, is_master=False, wait_for_workers=False, timeout=timeout
        )
        return Meeting(connection, met, host, port)


@contextmanager
def _meeting_errors(
    me: Rank, method: str, timeout: timedelta, again: bool
) -> Iterator[None]:
    """Torch's errors with the rank, the place and the next step."""
    where = (
        f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        if method == "env://"
        else method
    )
    try:
        yield
    except RuntimeError as error:
        if "EADDRINUSE" in str(
            error
        ):  # torch's DistNetworkError has it in its text alone
            raise LaunchError(
                f"{me} cannot listen at {where}: the port is in use on this host, perhaps by a run that has "
                "not ended. Give every rank another port, with MASTER_PORT or torchrun's --master-port."
            ) from error
        # Who met there before knows that the network lets them.
        step = (
            "every rank has left the previous job and calls init_process_group() again"
            if again
            else "rank 0's host is up, that a firewall lets this port through, and that every host runs the "
            "same command"
        )
        raise RankLostError(
            f"{me} did not meet the {me.world_size - 1} others at {where} within "
            f"{timeout.total_seconds():.3g} s: {str(error).splitlines()[0].rstrip('.')}. See that {step}."
        ) from error


def _place(store: Store) -> tuple[str | None, int]:
    """Host and port of a TCP store, which may lie below prefixes."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    return (str(host), int(port)) if host and port else (None, 0)
