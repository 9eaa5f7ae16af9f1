"""All ranks compare what they chose, through the store, before any communication library is started.

A job in which one rank chose nccl and another gloo hangs; here every rank says the same error instead.
Rank 0 reads every record and publishes one verdict, so that the work grows with the number of ranks, not
with its square.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core._support.torch_import import import_torch
from accel_core._text import clean
from accel_core.errors import RankLostError, RankMismatchError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["OldStoreError", "Record", "Round", "agree"]

#: Seconds by which the others wait longer than rank 0, whose verdict may come at its last moment.
_GRACE = 5.0


class Record(NamedTuple):
    """What one rank chose."""

    rank: int
    host: str
    backend: str = ""
    distribution: str = ""
    version: str = ""
    communication: str = ""
    #: How it came to that, as a clause.
    how: str = ""
    #: Why it did not choose others: reason by backend.
    others: dict[str, str] = {}  # noqa: RUF012 - never written to
    #: Why this rank cannot start at all.
    problem: str = ""
    #: Of rank 0: at which addresses, and at which port, it waits for the lines of the others.
    addresses: Sequence[str] = ()
    port: int = 0

    @classmethod
    def read(cls, rank: int, data: bytes) -> Record:
        """What `rank` left in the store: whoever may write there, or has another accel-core, writes anything.

        Where it is no record, one that says so comes back, so that all ranks learn whose fault it is.
        """
        try:
            fields = _fields(data)
            if unknown := sorted(map(repr, fields.keys() - set(cls._fields))):
                raise ValueError(f"it has unknown fields: {', '.join(unknown)}")
            for name, (fits, expected) in _FIELDS.items():
                if name in fields and not fits(fields[name]):
                    raise ValueError(f"its {name} is {fields[name]!r:.80}, expected {expected}")
            if fields.get("rank") != rank or "host" not in fields:
                raise ValueError(f"it does not say that it is of rank {rank}, and of which host")
        except ValueError as error:
            problem = f"what it left in the store is no record: {error}. {_SAME}"
            return cls(rank, "not known", problem=problem)
        return cls(**fields)

    @property
    def choice(self) -> tuple[str, ...]:
        """What must be equal on every rank."""
        return self.backend, self.distribution, self.version, self.communication

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip()
        return f"{self.backend} ({origin}) over {self.communication}"


def _is_whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_TEXT = (_is_text, "text")
_TEXTS = (_are_texts, "a list of texts")
_WHOLE = (_is_whole, "a whole number")
#: What each field of a record must be, and each part of a verdict.
_FIELDS = {
    **dict.fromkeys(("host", "backend", "distribution", "version", "communication", "how", "problem"), _TEXT),
    "rank": _WHOLE, "port": _WHOLE, "others": (_is_table, "texts by name"), "addresses": _TEXTS,
}  # fmt: skip
_VERDICT = {
    "error": _TEXT, "hosts": _TEXTS, "addresses": _TEXTS, "port": _WHOLE,
    "absent": (lambda value: isinstance(value, list) and all(map(_is_whole, value)), "a list of ranks"),
}  # fmt: skip
#: The most that one rank may leave, in bytes; a record has some hundred, a verdict some dozen a rank.
_MOST = 1 << 24
_SAME = "See that every host runs this script with the same accel-core, and that nobody else uses the store"


def _fields(data: bytes) -> dict[str, Any]:
    """The JSON object that `data` is; raises `ValueError` that says why it is none."""
    if len(data) > _MOST:
        raise ValueError(f"it has {len(data)} bytes, expected at most {_MOST}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise ValueError(f"it is {type(document).__name__}, expected an object")
    return document


class Round(NamedTuple):
    """What all ranks know once they agree."""

    #: A word that no other round has; the prefix of this round's keys.
    name: str
    #: The host of every rank.
    hosts: list[str]
    #: Where rank 0 waits for the lines of the others.
    addresses: list[str]
    port: int


class OldStoreError(RankLostError):
    """The store was closed before rank 0 said a word in it: perhaps it was that of an earlier round."""


def agree(store: Store, record: Record, world_size: int, timeout: float) -> Round:
    """The name of this round, and what else all must know, once all ranks have the same choice.

    torchrun's agents keep one store from restart to restart, so what lies in it may be of ranks that are no
    more, and nothing that torchrun tells a rank numbers the rounds. Hence a handshake: each rank says a word
    that nobody has said before, and takes the round's name only from an answer to that word.

    Raises `RankMismatchError`, the same on every rank, where the choices differ or a rank cannot start,
    and `RankLostError` where a rank does not come within `timeout` seconds.
    """
    from torch._C._distributed_c10d import PrefixStore

    if record.rank == 0:
        name = uuid.uuid4().hex
        round_store = PrefixStore(name, store)
        verdict = _preside(store, round_store, name, record, world_size, timeout)
        round_store.set("verdict", json.dumps(verdict))
        if verdict["error"]:
            _depart_last(round_store, world_size)
    else:
        name, verdict = _attend(store, record, timeout + _GRACE)
    if verdict["absent"]:
        raise RankLostError(verdict["error"], ranks=tuple(verdict["absent"]))
    if verdict["error"]:
        raise RankMismatchError(verdict["error"])
    return Round(name, verdict["hosts"], verdict["addresses"], verdict["port"])


def _preside(
    store: Store, round_store: Store, name: str, record: Record, world_size: int, timeout: float
) -> dict[str, Any]:
    """Rank 0: answer the others until all have left their records, and judge these."""
    end = time.monotonic() + timeout
    records = {0: record}
    answered: dict[int, bytes] = {}
    while True:
        for rank in range(1, world_size):
            if rank in records:
                continue
            if round_store.check([f"record/{rank}"]):
                records[rank] = Record.read(rank, round_store.get(f"record/{rank}"))
            elif store.check([f"word/{rank}"]):
                word = store.get(f"word/{rank}")
                if answered.get(rank) != word:  # the first may have been of a rank that is no more
                    answered[rank] = word
                    with contextlib.suppress(UnicodeDecodeError):  # no rank's: that one stays absent
                        store.set(f"answer/{word.decode()}", name)
        if len(records) == world_size or time.monotonic() > end:
            break
        time.sleep(0.02)
    absent = [rank for rank in range(world_size) if rank not in records]
    in_order = [_cleaned(records[rank]) for rank in sorted(records)]
    error = _not_there(absent, world_size, timeout) or _problems(in_order) or _differences(in_order)
    return {
        "error": error,
        "absent": absent,
        "hosts": [r.host for r in in_order],
        "addresses": list(record.addresses),
        "port": record.port,
    }


def _attend(store: Store, record: Record, patience: float) -> tuple[str, dict[str, Any]]:
    """Any other rank: learn the round's name, leave the record, read rank 0's verdict."""
    from torch._C._distributed_c10d import PrefixStore

    word = uuid.uuid4().hex
    of_rank_0 = f"rank {record.rank} (host {record.host}): what rank 0 left in the store is"
    wait = timedelta(seconds=patience)
    kind: type[RankLostError] = OldStoreError
    try:
        store.set(f"word/{record.rank}", word)
        store.wait([f"answer/{word}"], wait)
        name = store.get(f"answer/{word}").decode()
        kind = RankLostError
        round_store = PrefixStore(name, store)
        round_store.set(f"record/{record.rank}", json.dumps(record._asdict()))
        round_store.wait(["verdict"], wait)
        said = round_store.get("verdict")
        round_store.add("verdict-read", 1)
    except RuntimeError as error:
        closed = isinstance(error, import_torch().distributed.DistNetworkError)
        did = "closed the store early" if closed else f"did not answer within {patience:g} s"
        raise (kind if closed else RankLostError)(
            f"rank {record.rank} (host {record.host}): rank 0 {did}: {_first_line(error)}. See what rank 0 "
            "printed, and that its host can be reached.",
            ranks=(0,),
        ) from error
    except UnicodeDecodeError:
        raise RankMismatchError(f"{of_rank_0} no name of a round. {_SAME}.") from None
    try:
        return name, _verdict(said)
    except ValueError as error:
        raise RankMismatchError(f"{of_rank_0} no verdict: {error}. {_SAME}.") from None


def _verdict(data: bytes) -> dict[str, Any]:
    """What rank 0 published; raises `ValueError` that says why it is no verdict."""
    verdict = _fields(data)
    for name, (fits, expected) in _VERDICT.items():
        if not fits(verdict.get(name)):
            raise ValueError(f"its {name} is {verdict.get(name)!r:.80}, expected {expected}")
    return verdict


def _depart_last(store: Store, world_size: int) -> None:
    """Rank 0, whose process may hold the store, waits a little until all others have read the verdict."""
    end = time.monotonic() + _GRACE
    with contextlib.suppress(RuntimeError):
        while time.monotonic() < end and store.add("verdict-read", 0) < world_size - 1:
            time.sleep(0.02)


def _cleaned(record: Record) -> Record:
    """The record, whose texts are another host's, without what a terminal would obey."""
    texts: dict[str, Any] = {k: clean(v) for k, v in record._asdict().items() if isinstance(v, str)}
    return record._replace(**texts, others={clean(k): clean(v) for k, v in record.others.items()})


def _not_there(absent: list[int], world_size: int, timeout: float) -> str:
    if not absent:
        return ""
    return (
        f"{_enumerate(absent)} of {world_size} did not come to the start within {timeout:g} s. See what "
        "it printed, and whether its host can reach MASTER_ADDR at MASTER_PORT."
    )


def _problems(records: Iterable[Record]) -> str:
    faulty = [f"rank {r.rank} (host {r.host}) cannot start: {r.problem}" for r in records if r.problem]
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
        why = group[0].others.get(first.backend, "") if group[0].backend != first.backend else ""
        lines.append(
            f"  {_enumerate([record.rank for record in group])} (host {hosts}): {group[0]}, "
            f"{group[0].how}" + (f"; {first.backend} there: {why}" if why else "")
        )
    lines.append(
        f"Install the same version everywhere, or pin what all hosts have: DS_ACCELERATOR={first.backend} "
        "(accel why, on each host, says what is chosen there)."
    )
    return "\n".join(lines)


def _enumerate(ranks: list[int], most: int = 8) -> str:
    """`"rank 1"`, `"ranks 1, 2"`; a job of a thousand ranks must not fill the screen."""
    rest = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:most]))}{rest}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
