"""Compare the choices of all ranks in the store, before any communication library is started.

A job in which one rank chose nccl and another rank chose gloo would hang. This module makes every rank raise
the same error instead. Rank 0 reads all records and publishes one verdict, so the work grows linearly with
the number of ranks.

torchrun's agents keep one store across restarts, so the store may have keys of ranks that have ended. No
variable of torchrun numbers the starts (rounds). Therefore the ranks make a handshake: each rank writes a new
random word, and rank 0 answers the word with the round's name, which is the prefix of all other keys.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.errors import RankLostError, RankMismatchError
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_train.launch.rendezvous import Rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = [
    "CLOSING",
    "AgreementRound",
    "Exchange",
    "OldStoreError",
    "Record",
    "agree",
    "enumerated",
    "exchange_records",
]

#: The seconds by which the other ranks wait longer than rank 0, which may publish its verdict at the end of
#: the timeout.
_GRACE = 5.0
#: Seconds between two reads of the store.
_POLL = 0.02

#: The key that rank 0 sets in its store before it closes the store. A new job must not start in that store.
CLOSING = "accel/closing"


class Record(NamedTuple):
    """The choice of one rank."""

    rank: int
    host: str
    backend: str = ""
    distribution: str = ""
    version: str = ""
    communication: str = ""
    #: The kind of torch build, such as `"a CUDA build"`, if the communication backend belongs to the build.
    #: For example, `nccl` of a CUDA build and of a ROCm build cannot exchange data. Otherwise empty.
    build: str = ""
    #: How the backend was selected, as a clause.
    selection_reason: str = ""
    #: The reason against each backend that was not selected, by name.
    rejected: dict[str, str] = {}  # noqa: RUF012 - never written to
    #: The reason why this rank cannot start; empty if it can.
    problem: str = ""

    @classmethod
    def read(cls, rank: int, data: bytes) -> Record:
        """Return the record that `rank` wrote to the store.

        A different version of accel-train may write different fields. The result then has a `problem`.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            problem = (
                f"its record in the store cannot be read: {one_line(str(error))}. Install the same "
                "accel-train on every host"
            )
            return cls(rank, "unknown", problem=problem)

    @property
    def choice(self) -> tuple[str, ...]:
        """Return the values that must be equal on every rank."""
        return (
            self.backend,
            self.distribution,
            self.version,
            self.communication,
            self.build,
        )

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip()
        build = f" of {self.build} of torch" if self.build else ""
        return f"{self.backend} ({origin}) over {self.communication}{build}"


class AgreementRound(NamedTuple):
    """The result of an agreement, the same on every rank."""

    #: The unique name of this round, which is the prefix of the round's keys in the store.
    name: str
    #: The host of each rank.
    hosts: list[str]


class OldStoreError(RankLostError):
    """The store was closed before rank 0 wrote to it, so it may be the store of an earlier job."""


def agree(
    store: Store, record: Record, world_size: int, timeout: float
) -> AgreementRound:
    """Wait until all ranks have written their records, and check that all ranks made the same choice.

    `record` is this rank's record. Raises `RankMismatchError`, with the same message on every rank, if the
    choices differ or a rank cannot start. Raises `RankLostError` if a rank does not write its record within
    `timeout` seconds.
    """

    def judge(others: Mapping[int, bytes]) -> str:
        records = {0: record}
        for rank, data in others.items():
            records[rank] = Record.read(rank, data)
        return json.dumps(_build_verdict(records, world_size, timeout))

    me = Rank(record.rank, world_size, None, record.host)
    own_record = json.dumps(record._asdict())
    exchange = exchange_records(store, me, own_record, judge, timeout)
    verdict = json.loads(exchange.verdict)
    if record.rank == 0 and verdict["error"]:
        exchange.wait_for_readers()
    if verdict["absent"]:
        raise RankLostError(verdict["error"], ranks=tuple(verdict["absent"]))
    if verdict["error"]:
        raise RankMismatchError(verdict["error"])
    return AgreementRound(exchange.round_name, verdict["hosts"])


def _build_verdict(
    records: Mapping[int, Record], world_size: int, timeout: float
) -> dict[str, Any]:
    """Return rank 0's verdict on `records` as a JSON object. The keys of `records` are ranks.

    The verdict has three items. `error` is the message of the error that every rank raises; may be empty.
    `absent` lists the ranks without a record. `hosts` lists the host of each rank with a record.
    """
    absent = [rank for rank in range(world_size) if rank not in records]
    in_order = [_escaped(records[rank]) for rank in sorted(records)]
    error = ""
    if absent:
        error = _absent_message(absent, world_size, timeout)
    if not error:
        error = _problems_message(in_order)
    if not error:
        error = _differences_message(in_order)
    hosts = [record.host for record in in_order]
    return {"error": error, "absent": absent, "hosts": hosts}


class Exchange(NamedTuple):
    """The result of `exchange_records` on one rank."""

    #: The unique name of this round, which is the prefix of the round's keys in the store.
    round_name: str
    #: Rank 0's verdict on the records of all ranks.
    verdict: bytes
    world_size: int
    #: The job's store, with the round's prefix.
    store: Store

    def wait_for_readers(self) -> None:
        """Wait for up to 5 seconds until all other ranks have read the verdict.

        Called on rank 0, because the store may be in rank 0's process, which is about to end.
        """
        end = time.monotonic() + _GRACE
        with suppress(
            RuntimeError
        ):  # Raised if the store is closed. No rank can read it then.
            while time.monotonic() < end:
                readers = self.store.add(
                    "verdict-read", 0
                )  # Adding 0 reads the number.
                if readers >= self.world_size - 1:
                    return
                time.sleep(_POLL)


def exchange_records(
    store: Store,
    me: Rank,
    own_record: str,
    judge: Callable[[Mapping[int, bytes]], str],
    timeout: float,
) -> Exchange:
    """Send `own_record` to rank 0, and return rank 0's verdict, which is the same on every rank.

    On rank 0, `judge` gets the other ranks' records by rank, and returns the verdict. It is called when all
    ranks have written a record, or after `timeout` seconds with the existing records. Keys of an earlier
    round in the store are ignored. Raises `RankLostError` if rank 0 does not answer.
    """
    from torch._C._distributed_c10d import PrefixStore

    if me.rank != 0:
        return _send_record(store, me, own_record, timeout + _GRACE)
    name = uuid.uuid4().hex
    round_store = PrefixStore(name, store)
    records = _collect_records(store, round_store, name, me.world_size, timeout)
    verdict = judge(records)
    round_store.set("verdict", verdict)
    return Exchange(name, verdict.encode(), me.world_size, round_store)


def _collect_records(
    store: Store, round_store: Store, name: str, world_size: int, timeout: float
) -> dict[int, bytes]:
    """Answer the words of the other ranks until all of them have written a record, on rank 0.

    Returns the records by rank. After `timeout` seconds, the existing records are returned.
    """
    end = time.monotonic() + timeout
    records: dict[int, bytes] = {}
    answered: dict[int, bytes] = {}
    while True:
        missing = [rank for rank in range(1, world_size) if rank not in records]
        for rank in missing:
            if round_store.check([f"record/{rank}"]):
                records[rank] = round_store.get(f"record/{rank}")
            else:
                _answer_word(store, rank, name, answered)
        if len(records) == world_size - 1 or time.monotonic() > end:
            return records
        time.sleep(_POLL)


def _answer_word(
    store: Store, rank: int, name: str, answered: dict[int, bytes]
) -> None:
    """Answer the word of `rank` with the round's name, on rank 0, unless the word is in `answered`.

    The word may be from a process of an earlier start. The present process of that rank then writes a new
    word later.
    """
    if not store.check([f"word/{rank}"]):
        return
    word = store.get(f"word/{rank}")
    if answered.get(rank) != word:
        answered[rank] = word
        store.set(f"answer/{word.decode()}", name)


def _send_record(store: Store, me: Rank, own_record: str, timeout: float) -> Exchange:
    """Get the round's name, write the record, and read rank 0's verdict, on any rank except 0.

    Raises `OldStoreError` if the store closes before rank 0 answers, and `RankLostError` if rank 0 does not
    answer within `timeout` seconds.
    """
    from torch._C._distributed_c10d import PrefixStore

    word = uuid.uuid4().hex
    wait = timedelta(seconds=timeout)
    has_answer = False
    try:
        if store.check([CLOSING]):
            raise OldStoreError(f"{me}: the store of an earlier job is being closed")
        store.set(f"word/{me.rank}", word)
        store.wait([f"answer/{word}"], wait)
        name = store.get(f"answer/{word}").decode()
        has_answer = True
        round_store = PrefixStore(name, store)
        round_store.set(f"record/{me.rank}", own_record)
        round_store.wait(["verdict"], wait)
        verdict = round_store.get("verdict")
        round_store.add("verdict-read", 1)
    except OldStoreError:
        raise
    except RuntimeError as error:
        error_class: type[RankLostError] = RankLostError
        event = f"did not answer within {timeout:g} s"
        if isinstance(error, import_torch().distributed.DistNetworkError):
            event = "closed the store early"
            if not has_answer:
                error_class = OldStoreError
        raise error_class(
            f"{me}: rank 0 {event}: {_first_line(error)}. Read what rank 0 printed, and check that its host "
            "can be reached.",
            ranks=(0,),
        ) from error
    return Exchange(name, verdict, me.world_size, round_store)


def _escaped(record: Record) -> Record:
    """Return the record with control characters escaped, because its texts come from a different host."""
    texts: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if isinstance(value, str):
            texts[name] = one_line(value)
    rejected = {
        one_line(name): one_line(reason) for name, reason in record.rejected.items()
    }
    return record._replace(**texts, rejected=rejected)


def _absent_message(absent: list[int], world_size: int, timeout: float) -> str:
    """Return the message for ranks that wrote no record."""
    return (
        f"{enumerated(absent)} of {world_size} did not start within {timeout:g} s. Read what "
        f"{enumerated(absent)} printed, and check that MASTER_ADDR and MASTER_PORT can be reached from there."
    )


def _problems_message(records: Iterable[Record]) -> str:
    """Return a line for each rank that cannot start; empty if all ranks can start."""
    lines = [
        f"rank {record.rank} (host {record.host}) cannot start: {record.problem}"
        for record in records
        if record.problem
    ]
    return "\n".join(lines)


def _differences_message(records: Sequence[Record]) -> str:
    """Return the message for different choices, with a line for each choice; empty if all are equal."""
    ranks_by_choice: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        ranks_by_choice.setdefault(record.choice, []).append(record)
    if len(ranks_by_choice) == 1:
        return ""
    backend_of_rank_0 = records[0].backend
    lines = ["the ranks did not choose the same accelerator:"]
    for group in ranks_by_choice.values():
        lines.append(f"  {_choice_line(group, backend_of_rank_0)}")
    choices_without_build = {choice[:-1] for choice in ranks_by_choice}
    if len(choices_without_build) == 1:
        lines.append(
            f"{records[0].communication} cannot exchange data between different builds of torch. Start a "
            "separate job on the hosts of each vendor, or set ACCEL_COMMUNICATION_BACKEND=gloo"
        )
        return "\n".join(lines)
    pin = f"DS_ACCELERATOR={backend_of_rank_0}"
    lines.append(
        f"Install the same version on every host, or pin a backend that all hosts have, such as {pin}. To "
        "see the choice on a host, run accel why there."
    )
    return "\n".join(lines)


def _choice_line(group: Sequence[Record], backend_of_rank_0: str) -> str:
    """Return a line about a group of ranks with the same choice.

    If their backend differs from rank 0's, the line includes their reason against rank 0's backend.
    """
    first = group[0]
    hosts = ", ".join(dict.fromkeys(record.host for record in group))
    ranks = enumerated([record.rank for record in group])
    line = f"{ranks} (host {hosts}): {first}, {first.selection_reason}"
    if first.backend != backend_of_rank_0:
        reason = first.rejected.get(backend_of_rank_0, "")
        if reason:
            line += f"; {backend_of_rank_0} there: {reason}"
    return line


def enumerated(ranks: Sequence[int], max_ranks: int = 8) -> str:
    """Return the ranks as text, such as `"rank 1"` or `"ranks 1, 2 and 30 more"`.

    At most `max_ranks` ranks are listed.
    """
    listed = ", ".join(str(rank) for rank in ranks[:max_ranks])
    text = f"ranks {listed}" if len(ranks) > 1 else f"rank {listed}"
    if len(ranks) > max_ranks:
        text += f" and {len(ranks) - max_ranks} more"
    return text


def _first_line(error: BaseException) -> str:
    """Return the first line of the error's message without its full stop, or the class without a message."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
