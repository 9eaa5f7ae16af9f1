"""Read this process's rank from torchrun's variables, and connect to the store that all ranks share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.errors import LaunchError, RankLostError
from accel_core.torch_import import import_torch
from accel_train.launch.launchers import find_launcher
from accel_train.launch.variables import (
    LOCAL_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    RANK,
    WORLD_SIZE,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = [
    "Rank",
    "Rendezvous",
    "first_line",
    "is_launched",
    "read_rank",
    "rendezvous",
]


class Rank(NamedTuple):
    """A process's rank in a job, with the number of ranks and the process's host."""

    rank: int
    world_size: int
    #: The rank's number on its host, or `None` if it is unknown.
    local_rank: int | None
    host: str

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host})"


def read_rank(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    needs_address: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Rank:
    """Return this process's rank from torchrun's variables, which `rank` and `world_size` override.

    With `needs_address`, `MASTER_ADDR` and `MASTER_PORT` must be set too. `environ` defaults to this
    process's environment. Raises `LaunchError`, which names all missing variables, if a variable is not set.
    Raises `LaunchError` if the rank is negative or not below the world size. Raises `SettingError` if a
    variable's value is not a whole number.
    """
    env = os.environ if environ is None else environ
    needed = _needed_variables(rank, world_size, needs_address=needs_address)
    _raise_if_any_is_not_set(needed, env)
    if needs_address:
        # Read only to raise an error for an invalid port, which is clearer than torch's error.
        MASTER_PORT.read(env)
    if rank is None:
        rank = RANK.read(env)
    if world_size is None:
        world_size = WORLD_SIZE.read(env)
    local_rank = None
    if _is_variable_set(LOCAL_RANK.name, env):
        local_rank = LOCAL_RANK.read(env)
    if not 0 <= rank < world_size:
        raise LaunchError(
            f"rank {rank} is not valid in a job of {world_size} ranks, expected 0 to {world_size - 1}"
        )
    return Rank(rank, world_size, local_rank, socket.gethostname())


def _needed_variables(
    rank: int | None, world_size: int | None, *, needs_address: bool
) -> list[str]:
    """Return the names of the variables that `read_rank` needs, given the arguments of `read_rank`."""
    needed = []
    if rank is None:
        needed.append(RANK.name)
    if world_size is None:
        needed.append(WORLD_SIZE.name)
    if needs_address and rank is None:
        # The rank comes from a launcher, which must also set this variable.
        needed.append(LOCAL_RANK.name)
    if needs_address:
        needed += [MASTER_ADDR.name, MASTER_PORT.name]
    return needed


def _raise_if_any_is_not_set(names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise `LaunchError` if any of the variables is not set."""
    missing = [name for name in names if not _is_variable_set(name, environ)]
    if missing:
        raise LaunchError(_missing_variables_message(missing, environ))


def _is_variable_set(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether the variable named `name` is set to a value other than spaces."""
    return bool(environ.get(name, "").strip())


def _missing_variables_message(
    missing: Sequence[str], environ: Mapping[str, str]
) -> str:
    """Return the message for variables that are not set, with the next step."""
    verb = "is" if len(missing) == 1 else "are"
    names = ", ".join(missing)
    launcher = find_launcher(environ)
    if launcher is not None:
        rank = environ[launcher.rank_variable]
        return (
            f"{names} {verb} not set, although {launcher.name} started this process as rank {rank}. Set "
            f"{names} for all ranks. MASTER_ADDR is the host of rank 0."
        )
    return (
        f"{names} {verb} not set, because no launcher started this process. Run accel run train.py (or "
        "torchrun), or pass single_process=True."
    )


def is_launched() -> bool:
    """Return whether a launcher (torchrun, MPI's or Slurm's) started this process as a rank."""
    for torchrun_variable in (RANK, WORLD_SIZE):
        if _is_variable_set(torchrun_variable.name, os.environ):
            return True
    return find_launcher(os.environ) is not None


class Rendezvous(NamedTuple):
    """The store that all ranks share, and this rank's connection to it."""

    #: This rank's connection.
    store: Store
    #: The listening store, on rank 0 only, or `None` if the caller passed a store. The store listens as long
    #: as a reference to it exists, so no other object may hold a reference.
    server: Store | None
    #: The store's address, or `None` and 0 for a store that is not a `TCPStore`.
    host: str | None
    port: int

    def __str__(self) -> str:
        if self.host:
            return f"{self.host}:{self.port}"
        return "the store that the caller passed"


def rendezvous(
    me: Rank,
    init_method: str | None,
    store: Store | None,
    timeout: timedelta,
    *,
    had_earlier_job: bool = False,
) -> Rendezvous:
    """Connect to the store that all ranks share: `store`, or the store at `init_method` (default `"env://"`).

    `had_earlier_job` is True if this process was a rank of an earlier job. Raises `LaunchError` if rank 0
    cannot listen at the address. Raises `RankLostError` if a rank does not connect within `timeout`.
    """
    if store is not None:
        host, port = _tcp_address_of_store(store)
        return Rendezvous(store, None, host, port)
    distributed = import_torch().distributed
    method = init_method or "env://"
    with _convert_torch_errors(me, method, timeout, had_earlier_job=had_earlier_job):
        shared: Store
        # torch yields the store with the rank and world size, once for each start.
        rendezvous_of_starts = distributed.rendezvous(
            method, me.rank, me.world_size, timeout=timeout
        )
        shared, _rank, _world_size = next(rendezvous_of_starts)
        shared.set_timeout(timeout)
        host, port = _tcp_address_of_store(shared)
        has_listening_store = me.rank == 0 and isinstance(shared, distributed.TCPStore)
        if not has_listening_store:
            return Rendezvous(shared, None, host, port)
        # A model may keep the process group alive, and the group keeps its store alive. So the group gets a
        # separate connection instead of the listening store. Then the port is free when `server` is dropped.
        connection: Store = distributed.TCPStore(
            host, port, is_master=False, wait_for_workers=False, timeout=timeout
        )
        return Rendezvous(connection, shared, host, port)


@contextmanager
def _convert_torch_errors(
    me: Rank, method: str, timeout: timedelta, *, had_earlier_job: bool
) -> Iterator[None]:
    """Convert torch's errors into `LaunchError` and `RankLostError` with the rank, address and next step."""
    address = method
    if method == "env://":
        address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        yield
    except RuntimeError as error:
        # torch's DistNetworkError contains the operating system's error only in its message.
        if "EADDRINUSE" in str(error):
            raise LaunchError(
                f"{me} cannot listen at {address}: the port is in use on this host, perhaps by a run that "
                "has not ended. Use another port for all ranks, with MASTER_PORT or torchrun's --master-port."
            ) from error
        if had_earlier_job:  # The ranks could connect before, so the network works.
            check = "every rank has left the previous job and has called init_process_group() again"
        else:
            check = (
                "rank 0's host is up, that the firewall permits this port, and that every host runs the same "
                "command"
            )
        if me.rank == 0:
            event = f"did not meet the other ranks at {address}"
        else:
            event = f"did not connect to rank 0 at {address}"
        seconds = f"{timeout.total_seconds():.3g}"
        raise RankLostError(
            f"{me} {event} within {seconds} s: {first_line(error)}. Check that {check}."
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message without its full stop.

    Returns the name of the error's class if the message is empty.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def _tcp_address_of_store(store: Store) -> tuple[str | None, int]:
    """Return the host and port of a `TCPStore`, or `None` and 0 for any other store.

    Prefix stores around the `TCPStore` are ignored.
    """
    innermost: Any = store
    # A prefix store contains another store.
    while getattr(innermost, "underlying_store", None) is not None:
        innermost = innermost.underlying_store
    host = getattr(innermost, "host", None)
    port = getattr(innermost, "port", None)
    if host and port:
        return str(host), int(port)
    return None, 0
