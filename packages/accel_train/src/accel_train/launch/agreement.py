"""Compare the choices of all ranks in the store, before any communication library is started.

A job in which one rank chose nccl and another rank chose gloo would hang. This module makes every rank raise
the same error instead. Rank 0 reads all records and publishes one verdict, so the work grows linearly with
the number of ranks.

torchrun's agents keep one store across restarts, so the store may contain keys of ranks that have ended. No
variable of torchrun numbers the starts (rounds). Therefore each rank writes a new random token to the store,
and rank 0 replies to the token with the round's name. All other keys of the round begin with its name.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from accel_core.errors import RankLostError, RankMismatchError
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_train.launch.rendezvous import Rank, first_line

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = [
    "CLOSING",
    "AgreementRound",
    "Exchange",
    "OldStoreError",
    "Record",
    "agree",
    "exchange_records",
    "format_ranks",
]

#: The other ranks wait this many seconds longer than rank 0, because rank 0 may publish its verdict only at
#: the end of its timeout. Rank 0 then waits at most this long until they have read the verdict.
_GRACE_SECONDS = 5.0
#: Seconds between two reads of the store.
_POLL_INTERVAL = 0.02

#: The key that rank 0 sets in its store before it closes the store. A new job must not use a store with this
#: key.
CLOSING = "accel/closing"


class Record(NamedTuple):
    """A rank's record in the store: the accelerator that it chose, or the reason why it cannot start."""

    rank: int
    host: str
    backend: str = ""
    distribution: str = ""
    version: str = ""
    communication: str = ""
    #: The kind of torch build, such as `"a CUDA build"`, if the communication backend belongs to the build.
    #: For example, `nccl` of a CUDA build and of a ROCm build cannot exchange data. Otherwise empty.
    build: str = ""
    #: How the backend was selected, such as `"pinned by DS_ACCELERATOR='npu'"`.
    selection_reason: str = ""
    #: For each backend that was not selected, the reason why not.
    rejected: dict[str, str] = {}  # noqa: RUF012 - never written to
    #: The reason why this rank cannot start, or an empty string if it can.
    problem: str = ""

    @classmethod
    def from_json(cls, rank: int, data: bytes) -> Record:
        """Parse the record that the rank with the number `rank` wrote to the store.

        If a different version of accel-train wrote the record, the record may have different fields. If the
        record cannot be parsed, the result's `problem` is the parse error.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            problem = (
                f"the rank's record in the store cannot be read: {one_line(str(error))}. Next step: install "
                "the same version of accel-train on every host"
            )
            return cls(rank, "unknown", problem=problem)

    @property
    def choice(self) -> tuple[str, ...]:
        """Return the fields of the record, other than `build`, that must be equal on every rank."""
        return (self.backend, self.distribution, self.version, self.communication)

    def choice_text(self) -> str:
        """Return the choice as text, such as `"npu (accel-npu 1.0) over hccl"`."""
        origin = f"{self.distribution} {self.version}".strip()
        text = f"{self.backend} ({origin}) over {self.communication}"
        if self.build:
            text += f" of {self.build} of torch"
        return text


class _Verdict(NamedTuple):
    """Rank 0's verdict on the records of all ranks, which every rank reads."""

    #: The message of the error that every rank raises, or an empty string if the ranks agree.
    error: str
    #: The ranks that wrote no record.
    absent: list[int]
    #: The hosts of the ranks that wrote a record, in the order of ranks.
    hosts: list[str]


class AgreementRound(NamedTuple):
    """The result of one agreement among all ranks, which is equal on every rank."""

    #: The unique name of this round, which is the prefix of the round's keys in the store.
    name: str
    #: The host of each rank.
    hosts: list[str]


class OldStoreError(RankLostError):
    """The store closed before rank 0 replied, so the store may belong to an earlier job."""


def agree(
    store: Store, record: Record, world_size: int, timeout: float
) -> AgreementRound:
    """Wait until all ranks have written their records, and check that all ranks made the same choice.

    `record` is this rank's record. If the choices differ or a rank cannot start, `RankMismatchError` is
    raised with the same message on every rank. If a rank does not write its record within `timeout` seconds,
    `RankLostError` is raised.
    """

    def verdict_as_json(other_records: Mapping[int, bytes]) -> str:
        records = [record]
        for rank, data in sorted(other_records.items()):
            records.append(Record.from_json(rank, data))
        return json.dumps(_build_verdict(records, world_size, timeout)._asdict())

    me = Rank(record.rank, world_size, local_rank=None, host=record.host)
    record_json = json.dumps(record._asdict())
    exchange = exchange_records(store, me, record_json, verdict_as_json, timeout)
    verdict = _Verdict(**json.loads(exchange.verdict))
    if verdict.absent:
        raise RankLostError(verdict.error, ranks=tuple(verdict.absent))
    if verdict.error:
        raise RankMismatchError(verdict.error)
    return AgreementRound(exchange.round_name, verdict.hosts)


def _build_verdict(
    records: Sequence[Record], world_size: int, timeout: float
) -> _Verdict:
    """Return rank 0's verdict on the existing records, which are in the order of ranks."""
    present = {record.rank for record in records}
    absent = [rank for rank in range(world_size) if rank not in present]
    if absent:
        error = _absent_message(absent, world_size, timeout)
    elif any(record.problem for record in records):
        error = _problems_message(records)
    else:
        error = _differences_message(records)
    hosts = [record.host for record in records]
    return _Verdict(error, absent, hosts)


class Exchange(NamedTuple):
    """The result of `exchange_records` on one rank: the round's name and rank 0's verdict."""

    #: The unique name of this round, which is the prefix of the round's keys in the store.
    round_name: str
    #: Rank 0's verdict on the records of all ranks, in the caller's format.
    verdict: bytes


def exchange_records(
    store: Store,
    me: Rank,
    record: str,
    build_verdict: Callable[[Mapping[int, bytes]], str],
    timeout: float,
) -> Exchange:
    """Send this rank's record to rank 0, and return rank 0's verdict, which is the same on every rank.

    On rank 0, `build_verdict` is called with a dict of the other ranks' records, and returns the verdict. The
    call happens when all ranks have written a record, or after `timeout` seconds with the records that exist
    by then. Keys of an earlier round in the store are ignored. Raises `RankLostError` if rank 0 does not
    respond.
    """
    from torch._C._distributed_c10d import PrefixStore

    if me.rank != 0:
        return _send_record_and_await_verdict(
            store, me, record, timeout + _GRACE_SECONDS
        )
    round_name = uuid.uuid4().hex
    round_store = PrefixStore(round_name, store)
    records = _collect_records(store, round_store, round_name, me.world_size, timeout)
    verdict = build_verdict(records)
    round_store.set("verdict", verdict)
    _wait_until_verdict_is_read(round_store, readers=len(records))
    return Exchange(round_name, verdict.encode())


def _wait_until_verdict_is_read(round_store: Store, readers: int) -> None:
    """Wait for up to 5 seconds until `readers` ranks have read rank 0's verdict.

    Rank 0's process may contain the store, and may end after this function.
    """
    end = time.monotonic() + _GRACE_SECONDS
    # RuntimeError means that the store is closed. Then no rank can read the verdict.
    with suppress(RuntimeError):
        while time.monotonic() < end:
            # The store has no request that reads a counter, but adding 0 returns the counter's value.
            read_count = round_store.add("verdict-read", 0)
            if read_count >= readers:
                return
            time.sleep(_POLL_INTERVAL)


def _collect_records(
    store: Store, round_store: Store, round_name: str, world_size: int, timeout: float
) -> dict[int, bytes]:
    """Send the round's name to the other ranks and read their records, on rank 0.

    Returns the records by rank, when all other ranks have written one or `timeout` seconds have passed.
    """
    end = time.monotonic() + timeout
    records: dict[int, bytes] = {}
    missing = set(range(1, world_size))
    while True:
        for rank in sorted(missing):
            # Reading a key that does not exist yet would block.
            if round_store.check([f"record/{rank}"]):
                records[rank] = round_store.get(f"record/{rank}")
                missing.remove(rank)
            elif store.check([f"token/{rank}"]):
                # Reply to the rank with the round's name. If the token is from an earlier start, the rank's
                # current process will replace the token.
                token = store.get(f"token/{rank}").decode()
                store.set(f"reply/{token}", round_name)
        if not missing or time.monotonic() > end:
            return records
        time.sleep(_POLL_INTERVAL)


def _send_record_and_await_verdict(
    store: Store, me: Rank, record: str, timeout: float
) -> Exchange:
    """Write this rank's record to the store, and return rank 0's verdict, on any rank except 0.

    Raises `OldStoreError` if the store closes before rank 0 replies, and `RankLostError` if rank 0 does not
    respond within `timeout` seconds.
    """
    from torch._C._distributed_c10d import PrefixStore

    wait_time = timedelta(seconds=timeout)
    # Before rank 0 has replied, the store may belong to an earlier job.
    with _explain_store_errors(me, timeout, error_if_closed=OldStoreError):
        round_name = _request_round_name(store, me, wait_time)
    with _explain_store_errors(me, timeout, error_if_closed=RankLostError):
        round_store = PrefixStore(round_name, store)
        round_store.set(f"record/{me.rank}", record)
        round_store.wait(["verdict"], wait_time)
        verdict = round_store.get("verdict")
        round_store.add("verdict-read", 1)
    return Exchange(round_name, verdict)


def _request_round_name(store: Store, me: Rank, wait_time: timedelta) -> str:
    """Write a new token to the store, wait for rank 0's reply, and return the reply: the round's name.

    Raises `OldStoreError` if rank 0 has marked the store as closing.
    """
    if store.check([CLOSING]):
        raise OldStoreError(f"{me}: the store of an earlier job is being closed")
    token = uuid.uuid4().hex
    store.set(f"token/{me.rank}", token)
    store.wait([f"reply/{token}"], wait_time)
    return store.get(f"reply/{token}").decode()


@contextmanager
def _explain_store_errors(
    me: Rank, timeout: float, *, error_if_closed: type[RankLostError]
) -> Iterator[None]:
    """Convert the store's errors into `RankLostError`, or into `error_if_closed` if the store has closed."""
    try:
        yield
    except RankLostError:  # A RuntimeError that needs no conversion.
        raise
    except RuntimeError as error:
        is_closed = isinstance(error, import_torch().distributed.DistNetworkError)
        if is_closed:
            error_class = error_if_closed
            event = "rank 0 closed the store early"
        else:  # The store's wait() has reached its timeout.
            error_class = RankLostError
            event = f"rank 0 did not respond within {timeout:g} s"
        raise error_class(
            f"{me}: {event}: {first_line(error)}. Next step: read what rank 0 printed, and check that rank "
            "0's host can be reached.",
            ranks=(0,),
        ) from error


def _absent_message(absent: list[int], world_size: int, timeout: float) -> str:
    """Return the message for ranks that wrote no record."""
    ranks = format_ranks(absent)
    return (
        f"{ranks} of {world_size} did not start within {timeout:g} s. Next step: read what {ranks} printed, "
        f"and check that the hosts of {ranks} can reach MASTER_ADDR and MASTER_PORT."
    )


def _problems_message(records: Iterable[Record]) -> str:
    """Return a message with a line for each rank that cannot start, or an empty string if all can start."""
    lines = []
    for record in records:
        if record.problem:
            line = f"rank {record.rank} (host {record.host}) cannot start: {record.problem}"
            lines.append(one_line(line))
    return "\n".join(lines)


def _differences_message(records: Sequence[Record]) -> str:
    """Return the message for different choices, with a line for each choice.

    Returns an empty string if all ranks made the same choice.
    """
    records_by_choice: dict[tuple[tuple[str, ...], str], list[Record]] = {}
    for record in records:
        key = (record.choice, record.build)
        records_by_choice.setdefault(key, []).append(record)
    if len(records_by_choice) == 1:
        return ""
    backend_of_rank_0 = records[0].backend
    lines = ["the ranks did not choose the same accelerator:"]
    for group in records_by_choice.values():
        lines.append(f"  {one_line(_choice_line(group, backend_of_rank_0))}")
    only_builds_differ = len({record.choice for record in records}) == 1
    if only_builds_differ:
        lines.append(
            f"{records[0].communication} cannot exchange data between different builds of torch. Start a "
            "separate job on the hosts of each vendor, or set ACCEL_COMMUNICATION_BACKEND=gloo"
        )
        return "\n".join(lines)
    lines.append(
        "Install the same plugin version on every host, or select a backend that all hosts have, such as "
        f"DS_ACCELERATOR={backend_of_rank_0}. To see the choice of a host and the reason, run accel why on "
        "that host."
    )
    return "\n".join(lines)


def _choice_line(group: Sequence[Record], backend_of_rank_0: str) -> str:
    """Return a line about ranks that made the same choice. `group` has their records.

    If the ranks' backend differs from rank 0's, the line includes the reason why the ranks did not select
    rank 0's backend.
    """
    first_record, *_ = group  # The choice is the same in all records of the group.
    hosts: list[str] = []
    for record in group:
        if record.host not in hosts:
            hosts.append(record.host)
    ranks = format_ranks([record.rank for record in group])
    line = (
        f"{ranks} (host {', '.join(hosts)}): {first_record.choice_text()}, "
        f"{first_record.selection_reason}"
    )
    reason = first_record.rejected.get(backend_of_rank_0, "")
    if reason and first_record.backend != backend_of_rank_0:
        line += f"; {backend_of_rank_0} was not selected: {reason}"
    return line


def format_ranks(ranks: Sequence[int], max_ranks: int = 8) -> str:
    """Return rank numbers as text, such as `"rank 1"` or `"ranks 1, 2 and 30 more"`.

    The text lists at most `max_ranks` numbers.
    """
    listed = ", ".join(str(rank) for rank in ranks[:max_ranks])
    if len(ranks) == 1:
        return f"rank {listed}"
    text = f"ranks {listed}"
    if len(ranks) > max_ranks:
        text += f" and {len(ranks) - max_ranks} more"
    return text
