"""Compare the choices of all ranks, through the store, before any communication library is started.

A job in which one rank chose nccl and another gloo would hang; here every rank raises the same error instead.
Rank 0 reads all records and publishes one verdict, so the work grows with the number of ranks, not with its
square.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
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
    "Exchanged",
    "OldStoreError",
    "Record",
    "Round",
    "agree",
    "enumerated",
    "exchange",
]

#: Seconds by which the others wait longer than rank 0, whose verdict may come at its last moment.
_GRACE = 5.0


#: Set in the store of rank 0's process before that is closed; a job that begins must not use it.
CLOSING = "accel/closing"


class Record(NamedTuple):
    """The choice of one rank."""

    rank: int
    host: str
    backend: str = ""
    distribution: str = ""
    version: str = ""
    communication: str = ""
    #: `"a CUDA build"` or `"a ROCm build"` where the communication is the vendor's: both are `nccl`, and one
    #: cannot speak with the other. Else empty.
    build: str = ""
    #: How it came to that, as a clause.
    how: str = ""
    #: Why it did not choose others: reason by backend.
    others: dict[str, str] = {}  # noqa: RUF012 - never written to
    #: Why this rank cannot start at all.
    problem: str = ""

    @classmethod
    def read(cls, rank: int, data: bytes) -> Record:
        """Return the record that `rank` left in the store.

        Another version of this package may write other fields; the record returned then says so.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            problem = (
                f"its record in the store cannot be read: {one_line(str(error))}. Install the same "
                "accel-core on every host"
            )
            return cls(rank, "not known", problem=problem)

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


class Round(NamedTuple):
    """The common knowledge of all ranks after they agree."""

    #: A word that no other round has; the prefix of this round's keys.
    name: str
    #: The host of every rank.
    hosts: list[str]


class OldStoreError(RankLostError):
    """The store was closed before rank 0 wrote to it; it may be the store of an earlier round."""


def agree(store: Store, record: Record, world_size: int, timeout: float) -> Round:
    """Wait until all ranks have the same choice, and return the name of this round with what all must know.

    torchrun's agents keep one store across restarts, so the store may hold entries of ranks that have ended,
    and nothing that torchrun gives a rank numbers the rounds. So there is a handshake: each rank writes a new
    random word, and accepts the round's name only from an answer to that word.

    Raises `RankMismatchError`, the same on every rank, if the choices differ or a rank cannot start. Raises
    `RankLostError` if a rank does not arrive within `timeout` seconds.
    """

    def judge(others: Mapping[int, bytes]) -> str:
        records = {
            0: record,
            **{rank: Record.read(rank, data) for rank, data in others.items()},
        }
        return json.dumps(_judged(records, world_size, timeout))

    me = Rank(record.rank, world_size, None, record.host)
    exchanged = exchange(store, me, json.dumps(record._asdict()), judge, timeout)
    verdict = json.loads(exchanged.verdict)
    if record.rank == 0 and verdict["error"]:
        exchanged.wait_for_readers()
    if verdict["absent"]:
        raise RankLostError(verdict["error"], ranks=tuple(verdict["absent"]))
    if verdict["error"]:
        raise RankMismatchError(verdict["error"])
    return Round(exchanged.name, verdict["hosts"])


def _judged(
    records: Mapping[int, Record], world_size: int, timeout: float
) -> dict[str, Any]:
    """Rank 0's verdict on the records that came."""
    absent = [rank for rank in range(world_size) if rank not in records]
    in_order = [_cleaned(records[rank]) for rank in sorted(records)]
    return {
        "error": _not_there(absent, world_size, timeout)
        or _problems(in_order)
        or _differences(in_order),
        "absent": absent,
        "hosts": [r.host for r in in_order],
    }


class Exchanged(NamedTuple):
    """The result of an exchange on one rank: rank 0's verdict on the records of all ranks."""

    #: A word that no other round has.
    name: str
    verdict: bytes
    world_size: int
    store: Store

    def wait_for_readers(self) -> None:
        """On rank 0, whose process may hold the store: wait briefly until all others have read it."""
        end = time.monotonic() + _GRACE
        with suppress(RuntimeError):  # the store is closed: nobody can be waited for
            while time.monotonic() < end:
                readers = self.store.add("verdict-read", 0)  # adding 0 reads it
                if readers >= self.world_size - 1:
                    return
                time.sleep(0.02)


def exchange(
    store: Store,
    me: Rank,
    mine: str,
    judge: Callable[[Mapping[int, bytes]], str],
    timeout: float,
) -> Exchanged:
    """Give `mine` to rank 0 and return rank 0's verdict, which is the same on every rank.

    On rank 0, `judge` gets the records by rank and returns the verdict. It is called when all ranks have left
    a record, or after `timeout` seconds with those that have. Entries that an earlier round left in the store
    are ignored. Raises `RankLostError` if rank 0 does not answer.
    """
    from torch._C._distributed_c10d import PrefixStore

    if me.rank == 0:
        name = uuid.uuid4().hex
        round_store = PrefixStore(name, store)
        verdict = judge(_collected(store, round_store, name, me.world_size, timeout))
        round_store.set("verdict", verdict)
        return Exchanged(name, verdict.encode(), me.world_size, round_store)
    return _attend(store, me, mine, timeout + _GRACE)


def _collected(
    store: Store, round_store: Store, name: str, world_size: int, timeout: float
) -> dict[int, bytes]:
    """Rank 0: answer the others until all have left their records, by rank."""
    end = time.monotonic() + timeout
    left: dict[int, bytes] = {}
    answered: dict[int, bytes] = {}
    while True:
        for rank in range(1, world_size):
            if rank in left:
                continue
            if round_store.check([f"record/{rank}"]):
                left[rank] = round_store.get(f"record/{rank}")
            elif store.check([f"word/{rank}"]):
                word = store.get(f"word/{rank}")
                if (
                    answered.get(rank) != word
                ):  # the first may have been of a rank that is no more
                    answered[rank] = word
                    store.set(f"answer/{word.decode()}", name)
        if len(left) == world_size - 1 or time.monotonic() > end:
            return left
        time.sleep(0.02)


def _attend(store: Store, me: Rank, mine: str, patience: float) -> Exchanged:
    """Any other rank: learn the round's name, leave the record, read rank 0's verdict."""
    from torch._C._distributed_c10d import PrefixStore

    word = uuid.uuid4().hex
    wait = timedelta(seconds=patience)
    kind: type[RankLostError] = OldStoreError
    try:
        if store.check([CLOSING]):
            raise OldStoreError(f"{me}: the store of an earlier job is being closed")
        store.set(f"word/{me.rank}", word)
        store.wait([f"answer/{word}"], wait)
        name = store.get(f"answer/{word}").decode()
        kind = RankLostError
        round_store = PrefixStore(name, store)
        round_store.set(f"record/{me.rank}", mine)
        round_store.wait(["verdict"], wait)
        said = round_store.get("verdict")
        round_store.add("verdict-read", 1)
    except OldStoreError:
        raise
    except RuntimeError as error:
        closed = isinstance(error, import_torch().distributed.DistNetworkError)
        did = (
            "closed the store early"
            if closed
            else f"did not answer within {patience:g} s"
        )
        raise (kind if closed else RankLostError)(
            f"{me}: rank 0 {did}: {_first_line(error)}. See what rank 0 "
            "printed, and that its host can be reached.",
            ranks=(0,),
        ) from error
    return Exchanged(name, said, me.world_size, round_store)


def _cleaned(record: Record) -> Record:
    """The record, whose texts are another host's, without what a terminal would obey."""
    texts: dict[str, Any] = {
        k: one_line(v) for k, v in record._asdict().items() if isinstance(v, str)
    }
    return record._replace(
        **texts, others={one_line(k): one_line(v) for k, v in record.others.items()}
    )


def _not_there(absent: list[int], world_size: int, timeout: float) -> str:
    if not absent:
        return ""
    return (
        f"{enumerated(absent)} of {world_size} did not reach the start within {timeout:g} s. See what "
        "it printed, and whether its host can reach MASTER_ADDR at MASTER_PORT."
    )


def _problems(records: Iterable[Record]) -> str:
    faulty = [
        f"rank {r.rank} (host {r.host}) cannot start: {r.problem}"
        for r in records
        if r.problem
    ]
    return "\n".join(faulty)


def _differences(records: list[Record]) -> str:
    first = records[0]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.choice, []).append(record)
    if len(groups) == 1:
        return ""
    lines = ["the ranks did not choose the same accelerator:"]
    for group in groups.values():
        hosts = ", ".join(dict.fromkeys(record.host for record in group))
        why = (
            group[0].others.get(first.backend, "")
            if group[0].backend != first.backend
            else ""
        )
        lines.append(
            f"  {enumerated([record.rank for record in group])} (host {hosts}): {group[0]}, "
            f"{group[0].how}" + (f"; {first.backend} there: {why}" if why else "")
        )
    if len({choice[:-1] for choice in groups}) == 1:
        lines.append(
            f"{first.communication} of one build of torch cannot exchange data with that of another. Start a "
            "job on the hosts of each maker, or set ACCEL_COMMUNICATION_BACKEND=gloo"
        )
        return "\n".join(lines)
    lines.append(
        f"Install the same version everywhere, or pin what all hosts have: DS_ACCELERATOR={first.backend} "
        "(on each host, accel why shows what is chosen there)."
    )
    return "\n".join(lines)


def enumerated(ranks: list[int], most: int = 8) -> str:
    """Return `"rank 1"` or `"ranks 1, 2"`, at most `most` of them: a job may have a thousand ranks."""
    rest = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return (
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:most]))}{rest}"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
