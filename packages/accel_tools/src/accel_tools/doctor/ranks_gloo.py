"""Connect the ranks of a job over gloo, before their script starts.

If the ranks cannot connect, they try again without `GLOO_SOCKET_IFNAME`, and with each network interface that
all hosts have. Every rank takes part in each attempt, and rank 0 decides which attempt follows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_train.launch.agreement import exchange_records
from accel_train.launch.network import addressed_interfaces
from accel_train.launch.rendezvous import Rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["MAX_RANKS", "connect_over_gloo"]

#: The maximum number of ranks that are connected: gloo connects each rank to each other rank.
MAX_RANKS = 256
#: gloo's time limit in seconds for a connection, and the addition for each rank. gloo tries five times.
_CONNECT_SECONDS, _SECONDS_PER_RANK = 4.0, 0.1
#: The time limit in seconds of the exchange of results. One rank may need much longer than another.
_EXCHANGE_SECONDS = 150.0
#: The number of seconds after which no other interface is tried.
_MAX_SECONDS = 75.0
#: The maximum number of network interfaces that are tried.
_MAX_INTERFACES = 4
_VARIABLE = "GLOO_SOCKET_IFNAME"
#: Rank 0's verdicts that are not the name of an interface: the end, an attempt without the variable, and an
#: attempt with the variable as it was.
_END, _UNSET, _ORIGINAL = "/end", "/unset", "/original"


class _Attempt(NamedTuple):
    """The result of one attempt on one rank."""

    rank: int
    host: str
    #: The value of `GLOO_SOCKET_IFNAME` before the first attempt, or an empty string.
    variable: str
    #: The network interfaces that have an address.
    interfaces: list[str]
    #: The error, or an empty string if the rank connected.
    error: str

    @property
    def description(self) -> str:
        """Return the rank and its error as text."""
        variable = f", {_VARIABLE}={self.variable!r}" if self.variable else ""
        return f"rank {self.rank} (host {self.host}{variable}): {self.error}"


def connect_over_gloo(store: Store, rank: Rank) -> list[str]:
    """Connect this rank to all other ranks over gloo, and return the lines to print.

    All ranks must call this function at the same time. The list is empty if the ranks connect in the first
    attempt. On all ranks except rank 0, the list is always empty.
    """
    search = _InterfaceSearch()
    variable = os.environ.get(_VARIABLE, "")
    number = 0
    while True:
        # Each attempt has its own keys in the store.
        error = _try_to_connect(store, rank, f"accel/gloo/{number}")
        own_attempt = _Attempt(
            rank.rank, rank.host, variable, addressed_interfaces(), error
        )

        def decide(
            data_of_other_ranks: Mapping[int, bytes], own: _Attempt = own_attempt
        ) -> str:
            attempts = [own]
            for _rank, data in sorted(data_of_other_ranks.items()):
                attempts.append(_Attempt(*json.loads(data)))
            return search.next_attempt(attempts, rank.world_size)

        exchange = exchange_records(
            store, rank, json.dumps(own_attempt), decide, _EXCHANGE_SECONDS
        )
        verdict = exchange.verdict.decode()
        if verdict == _END:
            return search.lines()
        _set_interface(verdict, original=variable)
        number += 1


def _set_interface(verdict: str, original: str) -> None:
    """Set or unset `GLOO_SOCKET_IFNAME` for the next attempt.

    `verdict` is the name of an interface, `_UNSET` or `_ORIGINAL`. `original` is the variable's value before
    the first attempt, or an empty string if the variable was not set.
    """
    value = verdict
    if verdict == _UNSET:
        value = ""
    elif verdict == _ORIGINAL:
        value = original
    if value:
        os.environ[_VARIABLE] = value
    else:
        os.environ.pop(_VARIABLE, None)


def _try_to_connect(store: Store, rank: Rank, prefix: str) -> str:
    """Connect to all ranks, and return the error, or an empty string on success."""
    torch = import_torch()
    distributed = torch.distributed
    seconds = _CONNECT_SECONDS + _SECONDS_PER_RANK * rank.world_size
    try:
        distributed.init_process_group(
            "gloo",
            store=distributed.PrefixStore(prefix, store),
            rank=rank.rank,
            world_size=rank.world_size,
            timeout=timedelta(seconds=seconds),
        )
        distributed.all_reduce(torch.ones(1, device="cpu"))
    except PLUGIN_ERRORS as error:
        return one_line(root_cause(error))
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        # The process group has changed the time limit of the store.
        store.set_timeout(timedelta(seconds=_EXCHANGE_SECONDS))
    return ""


@dataclass
class _InterfaceSearch:
    """Rank 0's search for a network interface with which all ranks connect."""

    #: The first failed attempt of a rank, or `None` if all ranks connected in the first attempt.
    first_failure: _Attempt | None = None
    #: The verdicts for the attempts with a change. If `is_proven`, the ranks connected in the last of them.
    tried: list[str] = field(default_factory=list)
    #: Whether the ranks connected with a change, and did not connect without it before and after.
    is_proven: bool = False
    #: Whether the ranks connected without a change, but not at first.
    is_flaky: bool = False
    _is_confirming: bool = False
    _untried: list[str] = field(default_factory=list)
    _deadline: float = field(default_factory=lambda: time.monotonic() + _MAX_SECONDS)

    def next_attempt(self, attempts: list[_Attempt], world_size: int) -> str:
        """Return the verdict after an attempt: the interface to try next, `_UNSET`, `_ORIGINAL` or `_END`.

        `attempts` contains the result of each rank.
        """
        failed = [attempt for attempt in attempts if attempt.error]
        has_rank_ended = len(attempts) < world_size
        if has_rank_ended:
            return _END
        if self._is_confirming:
            self.is_proven = bool(failed)
            self.is_flaky = not failed
            return _END
        if not failed:
            if self.first_failure is None:
                return _END
            # A change is proven only if the ranks fail once more without the change.
            self._is_confirming = True
            return _ORIGINAL
        if self.first_failure is None:
            self.first_failure = failed[0]
            self._untried = _changes_to_try(attempts)
        if not self._untried or time.monotonic() >= self._deadline:
            return _END
        next_change = self._untried.pop(0)
        self.tried.append(next_change)
        return next_change

    def lines(self) -> list[str]:
        """Return the lines to print, or an empty list if the ranks connected in the first attempt."""
        if self.first_failure is None:
            return []
        failure = self.first_failure.description
        lines = [f"the ranks cannot connect over gloo: {failure}"]
        if self.is_flaky:
            return [*lines, "  The ranks connected when they tried again"]
        descriptions = [_describe_attempt(verdict) for verdict in self.tried]
        if self.is_proven:
            lines.append(f"  Proven: {descriptions[-1]}, the ranks connect")
            step = f"export {_VARIABLE}={self.tried[-1]}"
            if self.tried[-1] == _UNSET:
                step = f"unset {_VARIABLE}"
            lines.append(f"  Next step: {step}")
        elif descriptions:
            lines.append(f"  Changes without effect: {', '.join(descriptions)}")
        return lines


def _changes_to_try(attempts: list[_Attempt]) -> list[str]:
    """Return the verdicts for the changes to try: the variable unset if it is set, then interfaces."""
    changes = []
    if any(attempt.variable for attempt in attempts):
        changes.append(_UNSET)
    return [*changes, *_common_interfaces(attempts)[:_MAX_INTERFACES]]


def _describe_attempt(verdict: str) -> str:
    if verdict == _UNSET:
        return f"without {_VARIABLE}"
    return f"with the network interface {verdict}"


def _common_interfaces(attempts: list[_Attempt]) -> list[str]:
    """Return the network interfaces of all ranks: without `lo` if the ranks are on several hosts."""
    common = list(attempts[0].interfaces)
    for attempt in attempts[1:]:
        common = [name for name in common if name in attempt.interfaces]
    if len({attempt.host for attempt in attempts}) > 1:
        common = [name for name in common if name != "lo"]
    return common
