"""Detect lost ranks by heartbeats in torch's store.

A thread of each rank replaces the value of the rank's own key at regular intervals. Rank 0 reads all these
keys at once. When a rank is lost, rank 0 publishes a status and replaces the value of every key. The next
heartbeat of a rank then finds another value than its own, and the rank reads the status: one request serves
both directions.

What a rank has to report (its error, its arrival at the end), it appends to one more key, which rank 0 reads.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from accel_core.errors import CommunicationError, RankLostError
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_train.launch.agreement import enumerated

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["FailureDetector"]

_log = logging.getLogger("accel_train")
#: Ranks that one error, or one look at all ranks, names at most.
_NAMED = 8
#: Keys that one request reads or writes.
_PORTION = 500
#: Keys of the store: the status that rank 0 publishes, and the reports of all ranks, a line each.
_STATUS, _REPORTS = "status", "reports"


@dataclass(frozen=True)
class _Status:
    """The state of the job, as every rank knows it."""

    #: What happened to each lost rank.
    lost: dict[int, str] = field(default_factory=dict)
    #: Ranks that ended in good order, without `shutdown()`.
    left: tuple[int, ...] = ()
    #: Whether every rank has reached the end.
    complete: bool = False
    #: Whether rank 0 ends, perhaps with the store.
    closing: bool = False

    @classmethod
    def read(cls, data: bytes) -> _Status:
        fields = json.loads(data)
        lost = {int(rank): text for rank, text in fields["lost"].items()}
        return cls(lost, tuple(fields["left"]), fields["complete"], fields["closing"])

    def write(self) -> str:
        return json.dumps(asdict(self))


class FailureDetector:
    """This rank's heartbeats, its knowledge of the other ranks, and the end that all ranks reach together.

    `store` is a connection that nothing else uses, below a prefix that no other job has. `silence`: seconds
    without a heartbeat after which a rank counts as lost. `library` is the name of the communication backend.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        silence: float,
        store: Store,
        library: str = "",
    ) -> None:
        self._rank, self._hosts, self._silence = rank, hosts, silence
        self._store: Any = store  # torch's stubs lack `append` and `multi_set`
        self._libraries = _libraries(library)
        self._others = frozenset(range(len(hosts))) - {rank}
        #: Seconds between heartbeats, and between readings: in a large job rank 0 has many of them to serve.
        self.interval = max(
            min(1.0, silence / 5), min(len(hosts) / 1250, silence / 2.5)
        )
        #: The same while somebody waits for the other ranks.
        self._short_interval = min(self.interval, max(0.02, len(hosts) / 20000))
        #: Ranks whose heartbeats this rank reads. Rank 0 is watched from another host, if there is one.
        self._watched: list[int] = []
        if rank == 0:
            self._watched = sorted(self._others)
        elif rank == _deputy(hosts):
            self._watched = [0]
        # What follows is used by the thread of the heartbeats alone.
        #: The number of heartbeats sent, the value of this rank's key, and the number of statuses published.
        self._beats, self._value, self._published = 0, "", 0
        #: The value of each watched key, and when it changed.
        self._values: dict[int, bytes] = {}
        self._seen: dict[int, float] = {}
        self._can_read = False
        # What follows is shared between threads, under this lock.
        self._changed = threading.Condition()
        self._status = _Status()
        self._store_failure = ""
        self._answered = time.monotonic()
        self._unsent: list[str] = []
        self._wants_reports = False
        self._arrived: set[int] = set()
        self._ended: set[int] = set()
        self._is_awaited = False
        self._wake, self._stop = threading.Event(), threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run, name="accel-heartbeat", daemon=True
        )
        self._store_thread = threading.Thread(
            target=self._watch_store, name="accel-store", daemon=True
        )

    def start(self) -> None:
        """Start to send heartbeats and to watch."""
        if self._others:
            self._thread.start()
            if self._rank != 0:
                self._store_thread.start()

    def stop(self, failure: str = "") -> None:
        """End the heartbeats; report to the others that this rank has left, or the `failure` that ended it.

        On rank 0, whose process may hold the store, this waits briefly until the others have read the report.
        """
        # A forked child has no part in this.
        if self._stop.is_set() or os.getpid() != self._process:
            return
        if failure:
            self._report("failed", one_line(failure)[:500])
        elif self._status.complete:
            self._report("departed")
        else:
            self._report("left")
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            # It may hang in a store whose host is lost.
            self._thread.join(max(1.0, 3 * self.interval))
        if self._store_thread.is_alive():
            self._store_thread.join()

    # The state of the other ranks

    @property
    def trouble(self) -> bool:
        """Return whether a rank is lost."""
        return bool(self._status.lost or self._store_failure)

    def loss(self, *, at_the_end: bool = False) -> RankLostError | None:
        """Return the error for the ranks that are lost now; `None` if none is.

        `at_the_end`: a rank that left before the others is lost then, too.
        """
        status = self._status
        lost = dict(status.lost)
        if self._store_failure:
            lost[0] = self._store_failure
        if not lost and at_the_end:
            lost = dict.fromkeys(status.left, "left without shutdown()")
        if not lost:
            return None
        ranks = sorted(lost)
        texts = [self._sentence(rank, lost[rank]) for rank in ranks[:_NAMED]]
        if len(ranks) > _NAMED:
            texts.append(f"and {len(ranks) - _NAMED} more ranks")
        return RankLostError("; ".join(texts), ranks=tuple(ranks))

    def _sentence(self, rank: int, text: str) -> str:
        return f"rank {rank} (host {self._hosts[rank]}) {text}"

    def explain(self, error: BaseException) -> RankLostError | None:
        """Return the lost rank that caused `error`, which ends this rank; `None` if no rank is lost.

        For an error of a collective, this waits as long as it takes to notice that a rank is lost. Any other
        error is reported to the other ranks, which are about to miss this one.
        """
        if isinstance(error, RankLostError):
            return None
        loss = None
        if _is_about_peers(error, self._libraries):
            with self._awaited():
                self._changed.wait_for(
                    lambda: self.trouble, self._silence + 4 * self.interval
                )
            loss = self.loss()
        if loss is None:
            self.stop(f"{type(error).__name__}: {error}")
        return loss

    def gather(self, timeout: float) -> None:
        """Wait until every rank has reached the end.

        Raises `RankLostError` if a rank is lost, left early, or does not come within `timeout` seconds.
        """
        if not self._others:
            return
        self._report("arrived")
        with self._awaited():
            self._changed.wait_for(self._is_decided, timeout)
            if self._status.complete:
                return
            if loss := self.loss(at_the_end=True):
                raise loss
            self._wants_reports = True
            self._changed.wait_for(lambda: not self._wants_reports, self._silence)
        absent = sorted(self._others - self._arrived) or [0]
        missing = RankLostError(
            f"rank {self._rank} (host {self._hosts[self._rank]}) waited {timeout:g} s at the end for "
            f"{enumerated(absent, _NAMED)}: still at work, or stopped",
            ranks=tuple(absent),
        )
        self.stop(f"RankLostError: {missing}")
        raise missing

    def _is_decided(self) -> bool:
        return self._status.complete or self.loss(at_the_end=True) is not None

    def release_store(self) -> None:
        """Call it after `gather`, when this rank needs the store no more. Rank 0 waits for the others."""
        if self._rank == 0:
            with self._awaited():
                self._changed.wait_for(
                    lambda: self._ended >= self._others, max(5.0, self._silence)
                )
        self.stop()

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Hold the lock, and let the heartbeats come fast, while somebody waits for the other ranks."""
        with self._changed:
            self._is_awaited = True
            self._wake.set()
            try:
                yield
            finally:
                self._is_awaited = False

    def _report(self, word: str, detail: str = "") -> None:
        with self._changed:
            self._unsent.append(f"{self._rank} {word} {detail}\n")
        self._wake.set()

    # The thread of the heartbeats: nothing else uses the store

    def _run(self) -> None:
        before = time.monotonic()
        self._seen = dict.fromkeys(self._watched, before)
        try:
            if self._rank == 0:
                self._store.append(_REPORTS, "")  # a missing key cannot be read
                self._publish(_Status())
            while not self._stop.is_set() and not self._status.closing:
                now = time.monotonic()
                if now - before > 3 * self.interval:
                    # This process was stopped, or starved: that is not the other ranks' silence.
                    alive = [r for r in self._watched if r not in self._status.lost]
                    self._seen.update(dict.fromkeys(alive, now))
                before = now
                self._exchange()
                pause = self._short_interval if self._is_awaited else self.interval
                self._wake.wait(pause)
                self._wake.clear()
            self._depart()
        except RuntimeError as error:  # torch's errors of stores
            self._lose_store(error)

    def _exchange(self) -> None:
        """Send what is new, and read what is new."""
        self._send_reports()
        self._beat()
        if self._rank == 0:
            self._read_reports_and_heartbeats()
        elif self._watched:
            self._read_heartbeat_of_rank_0()
        wants_reports, arrived = self._wants_reports, self._arrived
        if wants_reports:
            arrived = _Reports.read(self._store.get(_REPORTS)).arrived
        with self._changed:
            self._arrived = arrived
            self._wants_reports = self._wants_reports and not wants_reports
            self._answered = time.monotonic()
            self._changed.notify_all()

    def _send_reports(self) -> None:
        with self._changed:
            unsent, self._unsent = self._unsent, []
        for line in unsent:
            self._store.append(_REPORTS, line)

    def _beat(self) -> None:
        """Replace the value of this rank's key; if it is not this rank's last one, read the new status."""
        self._beats += 1
        own, wanted = str(self._rank), str(self._beats)
        while True:
            found = self._store.compare_set(own, self._value, wanted).decode()
            self._value = found
            if found == wanted:
                return
            self._learn(_Status.read(self._store.get(_STATUS)))

    def _read_reports_and_heartbeats(self) -> None:
        """On rank 0: read everything, and publish what has changed."""
        silent = self._silent_ranks()
        reports = _Reports.read(self._store.get(_REPORTS))
        with self._changed:
            self._arrived, self._ended = reports.arrived, reports.ended
        complete = len(reports.arrived) == len(self._hosts)
        lost = {rank: self._silent for rank in silent if rank not in reports.ended}
        lost.update(reports.failed)
        self._publish_changes(
            _Status({} if complete else lost, tuple(sorted(reports.left)), complete)
        )

    def _read_heartbeat_of_rank_0(self) -> None:
        lost = {rank: text for rank, text in self._status.lost.items() if rank != 0}
        if self._silent_ranks() and not self._status.complete:
            lost[0] = self._silent
        if (0 in lost) != (self._status.lost.get(0) == self._silent):
            self._publish_changes(replace(self._status, lost=lost))

    def _silent_ranks(self) -> list[int]:
        """Read the heartbeats of the watched ranks; return those that have been silent for too long."""
        keys = [str(rank) for rank in self._watched]
        # Reading a key that nobody has set yet would wait for it.
        self._can_read = self._can_read or self._store.check(keys)
        values: list[bytes] = []
        for portion in _portions(keys) if self._can_read else ():
            values += self._store.multi_get(portion)
        now = time.monotonic()
        for rank, value in zip(self._watched, values, strict=False):
            if value != self._values.get(rank):
                self._values[rank] = value
                self._seen[rank] = now
        return [rank for rank, seen in self._seen.items() if now - seen > self._silence]

    @property
    def _silent(self) -> str:
        return f"has been silent for {self._silence:g} s"

    def _publish_changes(self, status: _Status) -> None:
        if status != self._status:
            self._publish(status)

    def _publish(self, status: _Status) -> None:
        """Make `status` known to all ranks."""
        self._published += 1
        mark = f"status {self._rank} {self._published}"
        keys = [str(rank) for rank in sorted(self._others)]
        self._store.set(_STATUS, status.write())
        for portion in _portions(keys):
            self._store.multi_set(portion, [mark] * len(portion))
        self._values.update(dict.fromkeys(self._watched, mark.encode()))
        self._learn(status)

    def _learn(self, status: _Status) -> None:
        """Take over a status, and log what is new in it."""
        lost = {rank: text for rank, text in status.lost.items() if rank != self._rank}
        with self._changed:
            before, self._status = self._status.lost, replace(status, lost=lost)
            self._changed.notify_all()
        new = [rank for rank in sorted(lost) if lost[rank] != before.get(rank)]
        for rank in new[:_NAMED]:
            _log.error("%s", self._sentence(rank, lost[rank]))
        if len(new) > _NAMED:
            _log.error("and %d more ranks", len(new) - _NAMED)
        if not status.complete:
            for rank in sorted(before.keys() - lost.keys()):
                _log.warning("%s", self._sentence(rank, "has answered again"))

    def _depart(self) -> None:
        """Use the store for the last time. On rank 0, wait briefly until the others have done so."""
        if self._rank != 0:
            if not self._stop.is_set():
                self._report("departed")
            self._send_reports()
            return
        self._send_reports()
        end = time.monotonic() + 2 * self.interval
        reports = _Reports.read(self._store.get(_REPORTS))
        lost = {**self._status.lost, **reports.failed}
        awaited = self._others - lost.keys()
        if not reports.ended >= awaited:
            left = tuple(sorted(reports.left))
            self._publish(replace(self._status, lost=lost, left=left, closing=True))
        while not reports.ended >= awaited and time.monotonic() < end:
            time.sleep(self._short_interval)
            reports = _Reports.read(self._store.get(_REPORTS))

    def _lose_store(self, error: BaseException) -> None:
        """The store has failed, and with it this rank's heartbeats have ended."""
        if self._stop.is_set() or self._status.complete or self._status.closing:
            return
        if self._rank == 0:
            _log.warning(
                "lost ranks are no longer noticed, as the ranks' store has failed: %s",
                one_line(str(error).split("\n")[0]),
            )
            return
        self._set_store_failure("is gone, or its host is: the ranks' store has closed")

    # The thread that watches the store, whose host may be lost: a request then hangs

    def _watch_store(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(self.interval) and self._thread.is_alive():
            now = time.monotonic()
            with self._changed:
                if now - before > 3 * self.interval:
                    self._answered = now
                silent = now - self._answered > self._silence
            before = now
            if silent and not self._store_failure:
                self._set_store_failure(
                    f"{self._silent}: the ranks' store on its host does not answer"
                )
            elif not silent and self._store_failure:
                self._store_failure = ""
                _log.warning("%s", self._sentence(0, "has answered again"))

    def _set_store_failure(self, text: str) -> None:
        with self._changed:
            self._store_failure = text
            self._changed.notify_all()
        _log.error("%s", self._sentence(0, text))


@dataclass
class _Reports:
    """The reports of all ranks about themselves."""

    arrived: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    #: Ranks that use the store no more, whatever was the reason.
    ended: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, data: bytes) -> _Reports:
        reports = cls()
        for line in data.decode().split("\n")[:-1]:
            number, word, detail = line.split(" ", 2)
            rank = int(number)
            if word == "arrived":
                reports.arrived.add(rank)
                continue
            reports.ended.add(rank)
            if word == "left":
                reports.left.add(rank)
            elif word == "failed":
                reports.failed[rank] = f"ended with {detail}"
        return reports


def _portions(keys: list[str]) -> Iterator[list[str]]:
    """Yield the keys by some hundreds: TCPStore's server reads a long request anew with each part of it."""
    for start in range(0, len(keys), _PORTION):
        yield keys[start : start + _PORTION]


def _deputy(hosts: Sequence[str]) -> int:
    """Return the rank that watches rank 0: the first on another host, else rank 1."""
    elsewhere = (rank for rank, host in enumerate(hosts) if host != hosts[0])
    return next(elsewhere, 1)


def _libraries(communication: str) -> re.Pattern[str] | None:
    """Give the words in the communication backend's errors: `"cpu:gloo,cuda:nccl"` names two."""
    names = {
        part.rpartition(":")[2].strip().lower() for part in communication.split(",")
    }
    if "staged" in names:
        names.add("gloo")
    found = "|".join(re.escape(name) for name in sorted(names) if name)
    return re.compile(f"(?<![a-z])(?:{found})", re.IGNORECASE) if found else None


def _is_about_peers(error: BaseException, libraries: re.Pattern[str] | None) -> bool:
    """Whether a collective failed, perhaps because of another rank.

    Torch's own classes of error say so, the name of the library, and where it was raised; words such as
    "timed out" do not, which a data loader's errors have, too.
    """
    if not isinstance(error, RuntimeError):
        return False
    if isinstance(
        error,
        (CommunicationError, getattr(import_torch().distributed, "DistError", ())),
    ):
        return True
    if libraries is not None and libraries.search(str(error)):
        return True
    where = [
        frame.f_globals.get("__name__")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    return where[-1:] == ["torch.distributed.distributed_c10d"]
