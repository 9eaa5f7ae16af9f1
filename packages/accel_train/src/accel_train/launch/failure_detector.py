"""Detect lost ranks by heartbeats in torch's store.

Each rank has its own key in the store. A thread of the rank changes the key's value at regular intervals;
each change is a heartbeat. Rank 0 reads the keys of all ranks at once. When a rank is lost, rank 0 publishes
a status and overwrites every rank's key. The next heartbeat of a rank then finds the overwritten value, and
the rank reads the status. So each heartbeat needs only one request, which also shows whether there is a new
status.

Each rank appends its reports (the error that ended it, its arrival at the end) to one more key, which rank 0
reads.
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
from accel_train.launch.agreement import format_ranks

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["FailureDetector", "default_silence"]

_log = logging.getLogger("accel_train")
#: The maximum number of ranks listed in one error, or for one change of the status.
_MAX_LISTED = 8
#: The number of keys that one request reads or writes.
_BATCH = 500
#: The key of the status that rank 0 publishes.
_STATUS = "status"
#: The key of the reports of all ranks. Each report is a line: `RANK KIND DETAIL`.
_REPORTS = "reports"
#: If this rank's own heartbeat is later than this many intervals, this process itself was stopped.
_STOPPED_INTERVALS = 3
#: How many heartbeats all ranks together send in a second, which limits rank 0's load: in normal operation,
#: and at most while they wait for other ranks.
_HEARTBEATS_PER_SECOND = 500
_MAX_HEARTBEATS_PER_SECOND = 20000
#: How many intervals fit into the time without a heartbeat after which a rank counts as lost. Rank 0 reads up
#: to one interval late, twice, and the other ranks read its status up to one interval late, so a loss is
#: still reported within twice that time.
_MIN_INTERVALS_OF_SILENCE = 2.5
#: The least number of seconds of `default_silence`.
_MIN_DEFAULT_SILENCE = 10.0


@dataclass(frozen=True)
class _Status:
    """The state of the job, as published by rank 0."""

    #: For each lost rank, what happened to it, such as `"has sent no heartbeat for 10 s"`.
    lost: dict[int, str] = field(default_factory=dict)
    #: Ranks that ended without an error and without `shutdown()`.
    left_early: tuple[int, ...] = ()
    #: Whether every rank has called `shutdown()`.
    complete: bool = False
    #: Whether rank 0's process is about to end, perhaps with the store.
    closing: bool = False

    @classmethod
    def from_json(cls, data: bytes) -> _Status:
        fields = json.loads(data)
        return cls(
            lost={int(rank): event for rank, event in fields["lost"].items()},
            left_early=tuple(fields["left_early"]),
            complete=fields["complete"],
            closing=fields["closing"],
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def default_silence(rank_count: int) -> float:
    """Return the number of seconds without a heartbeat after which a rank counts as lost, by default.

    The result is 10 for jobs of up to 2,000 ranks, and grows with the number of ranks above: rank 0 serves
    500 heartbeats in a second, which use about 3 % of a core.
    """
    seconds_for_one_heartbeat_each = rank_count / _HEARTBEATS_PER_SECOND
    silence = _MIN_INTERVALS_OF_SILENCE * seconds_for_one_heartbeat_each
    return max(_MIN_DEFAULT_SILENCE, silence)


class FailureDetector:
    """A detector of lost ranks, which also sends this rank's heartbeats and waits for all ranks at the end.

    `hosts` lists the host of each rank. `silence` is the number of seconds without a heartbeat after which a
    rank counts as lost. `store` is a connection to torch's store that nothing else uses, with a prefix that
    is unique to the job. `communication` is the name of torch's communication backend, by which errors of
    collectives are recognized.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        silence: float,
        store: Store,
        communication: str = "",
    ) -> None:
        self._rank, self._hosts, self._silence = rank, hosts, silence
        self._store: Any = store  # torch's stubs lack `append` and `multi_set`
        self._library_pattern = _library_pattern(communication)
        self._others = frozenset(range(len(hosts))) - {rank}
        # Heartbeats are rarer in a large job, because rank 0 serves the heartbeats of all ranks.
        min_interval = min(1.0, silence / 5)
        max_interval = silence / _MIN_INTERVALS_OF_SILENCE
        interval_for_load = len(hosts) / _HEARTBEATS_PER_SECOND
        #: Seconds between two heartbeats.
        self.interval = max(min_interval, min(interval_for_load, max_interval))
        short_interval = max(0.02, len(hosts) / _MAX_HEARTBEATS_PER_SECOND)
        #: Seconds between two heartbeats while this rank waits for other ranks.
        self._short_interval = min(self.interval, short_interval)
        #: The ranks whose heartbeats this rank reads. Rank 0 reads those of all other ranks, and one other
        #: rank reads those of rank 0.
        self._watched: list[int] = []
        if rank == 0:
            self._watched = sorted(self._others)
        elif rank == _rank_that_watches_rank_0(hosts):
            self._watched = [0]
        # Only the heartbeat thread uses these:
        self._heartbeats_sent = 0
        self._statuses_published = 0
        #: The last known value of this rank's key.
        self._own_value = ""
        #: The value of each watched rank's key, and the time when that value was new.
        self._values: dict[int, bytes] = {}
        self._value_times: dict[int, float] = {}
        #: Whether every watched rank has sent a heartbeat.
        self._has_all_keys = False
        # The threads share these, under the lock of `_state_changed`, which is notified of changes:
        self._state_changed = threading.Condition()
        self._status = _Status()
        #: What happened to the store if it has failed or does not respond; otherwise empty.
        self._store_failure = ""
        self._last_response = time.monotonic()
        self._unsent_reports: list[str] = []
        #: Whether `wait_for_all` needs the reports, which only rank 0 reads otherwise.
        self._needs_reports = False
        #: Ranks that have called `shutdown()`.
        self._arrived: set[int] = set()
        #: Ranks that no longer use the store.
        self._ended: set[int] = set()
        self._is_waiting = False
        self._wake_up, self._stop = threading.Event(), threading.Event()
        self._process = os.getpid()
        self._heartbeat_thread = threading.Thread(
            target=self._run_heartbeat_thread, name="accel-heartbeat", daemon=True
        )
        self._store_thread = threading.Thread(
            target=self._run_store_thread, name="accel-store", daemon=True
        )

    def start(self) -> None:
        """Start the threads that send heartbeats and watch the store. A job of one rank needs no threads."""
        if self._others:
            self._heartbeat_thread.start()
            if self._rank != 0:
                self._store_thread.start()

    def stop(self, failure: str = "") -> None:
        """Stop sending heartbeats, and report to the other ranks that this rank has left.

        `failure` is the error that ended this rank, or an empty string without an error. Rank 0, whose
        process may contain the store, waits briefly until the other ranks have read the report. A second call
        does nothing.
        """
        # A forked child is not a rank of the job.
        if self._stop.is_set() or os.getpid() != self._process:
            return
        if failure:
            self._queue_report("failed", one_line(failure)[:500])
        elif self._status.complete:
            self._queue_report("shut-down")
        else:
            self._queue_report("left-early")
        self._stop.set()
        self._wake_up.set()
        if self._heartbeat_thread.is_alive():
            # With a deadline: a request to a store on a lost host may hang.
            self._heartbeat_thread.join(max(1.0, 3 * self.interval))
        if self._store_thread.is_alive():
            self._store_thread.join()

    # --- The user's thread ------------------------------------------------------------

    @property
    def has_lost_ranks(self) -> bool:
        """Return whether a rank or the store has been lost."""
        return bool(self._status.lost or self._store_failure)

    def lost_ranks_error(
        self, *, count_early_leavers: bool = False
    ) -> RankLostError | None:
        """Return the error for the ranks that are currently lost, or `None` if no rank is lost.

        With `count_early_leavers`, if no other rank is lost, ranks that ended without calling `shutdown()`
        count as lost.
        """
        status = self._status
        lost = dict(status.lost)
        if self._store_failure:
            lost[0] = self._store_failure  # The store is on rank 0's host.
        if not lost and count_early_leavers:
            for rank in status.left_early:
                lost[rank] = "left without shutdown()"
        if not lost:
            return None
        ranks = sorted(lost)
        listed = ranks[:_MAX_LISTED]
        sentences = [self._event_sentence(rank, lost[rank]) for rank in listed]
        if len(ranks) > _MAX_LISTED:
            sentences.append(f"and {len(ranks) - _MAX_LISTED} more ranks")
        return RankLostError("; ".join(sentences), ranks=tuple(ranks))

    def _event_sentence(self, rank: int, event: str) -> str:
        """Return a sentence about a rank, such as `"rank 2 (host b) has sent no heartbeat for 10 s"`.

        `event` is the part of the sentence after the rank.
        """
        return f"rank {rank} (host {self._hosts[rank]}) {event}"

    def explain_or_report(self, error: BaseException) -> RankLostError | None:
        """Return the `RankLostError` for the lost rank that caused `error`, or report `error` to other ranks.

        Call this method when `error` ends this rank. Only an error of a collective can be caused by a lost
        rank. For such an error, the method waits as long as it takes to detect a lost rank. If no rank is
        lost, the method reports `error` to the other ranks and returns `None`. If `error` is itself a
        `RankLostError`, the method only returns `None`.
        """
        if isinstance(error, RankLostError):
            return None
        rank_lost_error = None
        if _is_collective_error(error, self._library_pattern):
            # The collective may have failed before the heartbeats show which rank was lost.
            max_detection_time = self._silence + 4 * self.interval
            with self._frequent_heartbeats():
                self._state_changed.wait_for(
                    lambda: self.has_lost_ranks, max_detection_time
                )
            rank_lost_error = self.lost_ranks_error()
        if rank_lost_error is None:
            self.stop(f"{type(error).__name__}: {error}")
        return rank_lost_error

    def wait_for_all(self, timeout: float) -> None:
        """Wait until every rank has called this method.

        Raises `RankLostError` if a rank is lost, has left, or does not call this method within `timeout`
        seconds.
        """
        if not self._others:
            return
        self._queue_report("arrived")
        with self._frequent_heartbeats():
            self._state_changed.wait_for(self._is_end_decided, timeout)
            if self._status.complete:
                return
            rank_lost_error = self.lost_ranks_error(count_early_leavers=True)
            if rank_lost_error is not None:
                raise rank_lost_error
            # The heartbeat thread reads which ranks have arrived, for the message.
            self._needs_reports = True
            self._state_changed.wait_for(lambda: not self._needs_reports, self._silence)
        absent = sorted(self._others - self._arrived)
        if not absent:
            # All other ranks have arrived, but rank 0 has not published that the job is complete.
            absent = [0]
        error = RankLostError(
            f"rank {self._rank} (host {self._hosts[self._rank]}) waited {timeout:g} s at the end of the job "
            f"for {format_ranks(absent, _MAX_LISTED)} (still running or stopped)",
            ranks=tuple(absent),
        )
        self.stop(f"RankLostError: {error}")
        raise error

    def _is_end_decided(self) -> bool:
        """Return whether all ranks have arrived at the end, or a rank is lost and will not arrive."""
        has_loss = self.lost_ranks_error(count_early_leavers=True) is not None
        return self._status.complete or has_loss

    def release_store(self) -> None:
        """Stop using the store after `wait_for_all` has returned.

        On rank 0, whose process may contain the store, this method first waits until the other ranks have
        stopped using the store. The wait ends after 5 seconds or `silence` seconds, whichever is longer.
        """
        if self._rank == 0:  # This process may contain the store.
            with self._frequent_heartbeats():
                self._state_changed.wait_for(
                    lambda: self._ended.issuperset(self._others),
                    timeout=max(5.0, self._silence),
                )
        self.stop()

    @contextmanager
    def _frequent_heartbeats(self) -> Iterator[None]:
        """Hold the lock and send heartbeats more often, while this rank waits for other ranks."""
        # While a thread waits for a change of the state, it releases the lock.
        with self._state_changed:
            self._is_waiting = True
            self._wake_up.set()
            try:
                yield
            finally:
                self._is_waiting = False

    def _queue_report(self, kind: str, detail: str = "") -> None:
        """Let the heartbeat thread append a report about this rank.

        `kind` is `arrived` (this rank has called `shutdown()`), `shut-down` (all ranks have called it, or
        rank 0 is about to end), `left-early` (this rank ended without an error and before all ranks had
        called `shutdown()`), or `failed` (an error ended this rank).
        """
        with self._state_changed:
            self._unsent_reports.append(f"{self._rank} {kind} {detail}\n")
        self._wake_up.set()

    # --- The heartbeat thread; no other thread uses the store --------------------------

    def _run_heartbeat_thread(self) -> None:
        """Send heartbeats until the rank stops, or rank 0 ends."""
        previous = time.monotonic()
        for rank in self._watched:
            self._value_times[rank] = previous
        try:
            if self._rank == 0:
                self._store.append(_REPORTS, "")  # reading a missing key would block
                self._publish_status(_Status())
            while not self._stop.is_set() and not self._status.closing:
                now = time.monotonic()
                if now - previous > _STOPPED_INTERVALS * self.interval:
                    # This process was stopped, or got no CPU time. So this rank could not read the
                    # heartbeats of the other ranks, which therefore do not count as silent.
                    for rank in set(self._watched) - self._status.lost.keys():
                        self._value_times[rank] = now
                previous = now
                self._exchange_heartbeats_and_reports()
                pause = self._short_interval if self._is_waiting else self.interval
                self._wake_up.wait(pause)
                self._wake_up.clear()
            self._send_last_reports()
        except RuntimeError as error:  # torch's stores raise this
            self._handle_store_error(error)

    def _exchange_heartbeats_and_reports(self) -> None:
        """Send this rank's reports and heartbeat, and check the watched ranks for silence."""
        self._append_reports()
        self._send_heartbeat()
        if self._rank == 0:
            self._check_other_ranks()
        elif self._watched:
            self._check_rank_0()
        if self._needs_reports:
            # Read without the lock, because the store may respond late.
            arrived = self._read_reports().arrived
            with self._state_changed:
                self._arrived = arrived
                self._needs_reports = False
        with self._state_changed:
            self._last_response = time.monotonic()
            self._state_changed.notify_all()

    def _append_reports(self) -> None:
        """Append this rank's unsent reports to those in the store."""
        with self._state_changed:
            unsent, self._unsent_reports = self._unsent_reports, []
        for line in unsent:
            self._store.append(_REPORTS, line)

    def _read_reports(self) -> _Reports:
        """Read the reports of all ranks from the store."""
        return _Reports.parse(self._store.get(_REPORTS))

    def _send_heartbeat(self) -> None:
        """Change the value of this rank's key. If a published status overwrote the value, read the status."""
        self._heartbeats_sent += 1
        key, new_value = str(self._rank), str(self._heartbeats_sent)
        while True:
            # The store sets the new value only if the key still has this rank's previous value. In either
            # case, the store returns the key's current value.
            value = self._store.compare_set(key, self._own_value, new_value).decode()
            self._own_value = value
            if value == new_value:
                return
            # Another rank has overwritten the key, because there is a new status.
            self._adopt_and_log_status(_Status.from_json(self._store.get(_STATUS)))

    def _check_other_ranks(self) -> None:
        """Read all heartbeats and reports on rank 0, and publish the status if it has changed."""
        silent = self._find_silent_ranks()
        reports = self._read_reports()
        with self._state_changed:
            self._arrived, self._ended = reports.arrived, reports.ended
        left_early = tuple(sorted(reports.left_early))
        have_all_arrived = len(reports.arrived) == len(self._hosts)
        lost: dict[int, str] = {}
        if not have_all_arrived:
            for rank in silent - reports.ended:
                lost[rank] = self._silence_event
            lost.update(reports.failed)
        self._publish_if_changed(_Status(lost, left_early, complete=have_all_arrived))

    def _check_rank_0(self) -> None:
        """Publish a status if rank 0 falls silent, or sends heartbeats again.

        Only the rank that watches rank 0 calls this method.
        """
        was_silent = self._status.lost.get(0) == self._silence_event
        # At the end of a complete job, rank 0 may stop its heartbeats first.
        is_silent = 0 in self._find_silent_ranks() and not self._status.complete
        if is_silent == was_silent:
            return
        lost = dict(self._status.lost)
        if is_silent:
            lost[0] = self._silence_event
        else:
            del lost[0]
        self._publish_if_changed(replace(self._status, lost=lost))

    def _find_silent_ranks(self) -> set[int]:
        """Read the watched ranks' heartbeats, and return the ranks that have been silent for too long."""
        values = self._read_heartbeats()
        now = time.monotonic()
        for rank, value in values.items():
            if value != self._values.get(rank):
                self._values[rank] = value
                self._value_times[rank] = now
        silent = set()
        for rank, last_heartbeat in self._value_times.items():
            if now - last_heartbeat > self._silence:
                silent.add(rank)
        return silent

    def _read_heartbeats(self) -> dict[int, bytes]:
        """Return the value of each watched rank's key.

        Returns an empty dict until every watched rank has sent a heartbeat.
        """
        keys = [str(rank) for rank in self._watched]
        if not self._has_all_keys:
            self._has_all_keys = self._store.check(keys)
        if not self._has_all_keys:
            return {}  # Reading a key that does not exist yet would block.
        values: list[bytes] = []
        for batch in _in_batches(keys):
            values += self._store.multi_get(batch)
        return dict(zip(self._watched, values, strict=True))

    @property
    def _silence_event(self) -> str:
        """Return what happened to a silent rank, as the rest of a sentence that begins with the rank."""
        return f"has sent no heartbeat for {self._silence:g} s"

    def _publish_if_changed(self, status: _Status) -> None:
        """Publish `status` if it differs from the status that this rank knows."""
        if status != self._status:
            self._publish_status(status)

    def _publish_status(self, status: _Status) -> None:
        """Write `status` to the store, and overwrite the other ranks' keys so that they read the status."""
        self._statuses_published += 1
        overwriting_value = f"status {self._rank} {self._statuses_published}"
        keys = [str(rank) for rank in sorted(self._others)]
        self._store.set(_STATUS, status.to_json())
        for batch in _in_batches(keys):
            self._store.multi_set(batch, [overwriting_value] * len(batch))
        # The overwriting value in a watched rank's key is not a heartbeat of that rank.
        for rank in self._watched:
            self._values[rank] = overwriting_value.encode()
        self._adopt_and_log_status(status)

    def _adopt_and_log_status(self, status: _Status) -> None:
        """Replace this rank's status with the published `status`, and log which ranks are lost or back."""
        lost = dict(status.lost)
        # This rank may count as lost to the others, but it is evidently running.
        lost.pop(self._rank, None)
        with self._state_changed:
            previously_lost = self._status.lost
            self._status = replace(status, lost=lost)
            self._state_changed.notify_all()
        changed_ranks = []
        for rank in sorted(lost):
            if lost[rank] != previously_lost.get(rank):
                changed_ranks.append(rank)
        for rank in changed_ranks[:_MAX_LISTED]:
            _log.error("%s", self._event_sentence(rank, lost[rank]))
        if len(changed_ranks) > _MAX_LISTED:
            _log.error("and %d more ranks", len(changed_ranks) - _MAX_LISTED)
        if not status.complete:
            for rank in sorted(previously_lost.keys() - lost.keys()):
                _log.warning("%s", self._event_sentence(rank, "sends heartbeats again"))

    def _send_last_reports(self) -> None:
        """Append the last reports. Rank 0 then waits briefly until no other rank uses the store."""
        if self._rank != 0:
            is_rank_0_closing = not self._stop.is_set()
            if is_rank_0_closing:
                self._queue_report("shut-down")
            self._append_reports()
            return
        self._append_reports()
        # Rank 0's process may contain the store, so the other ranks get time for their last reports.
        end = time.monotonic() + 2 * self.interval
        reports = self._read_reports()
        lost = {**self._status.lost, **reports.failed}
        left_early = tuple(sorted(reports.left_early))
        still_running = self._others - lost.keys() - reports.ended
        if still_running:
            self._publish_status(
                replace(self._status, lost=lost, left_early=left_early, closing=True)
            )
        while still_running and time.monotonic() < end:
            time.sleep(self._short_interval)
            still_running -= self._read_reports().ended

    def _handle_store_error(self, error: BaseException) -> None:
        """Log an error of the store on rank 0, or record it on another rank. Ignore it at the job's end."""
        if self._stop.is_set() or self._status.complete or self._status.closing:
            return
        if self._rank == 0:
            first_line, _, _ = str(error).partition("\n")
            _log.warning(
                "lost ranks can no longer be detected, because the job's store has failed: %s",
                one_line(first_line),
            )
            return
        self._set_store_failure(
            "has ended, or its host is lost: the job's store has closed"
        )

    # --- The store thread. The heartbeat thread cannot do this work: its requests hang if the store's host
    # --- is lost.

    def _run_store_thread(self) -> None:
        """Detect a store that does not respond for `silence` seconds."""
        previous = time.monotonic()
        while not self._stop.wait(self.interval) and self._heartbeat_thread.is_alive():
            now = time.monotonic()
            with self._state_changed:
                if now - previous > _STOPPED_INTERVALS * self.interval:
                    # This process itself was stopped, so it could not get a response.
                    self._last_response = now
                is_silent = now - self._last_response > self._silence
            previous = now
            if is_silent and not self._store_failure:
                self._set_store_failure(
                    f"{self._silence_event}: the job's store on its host does not respond"
                )
            elif not is_silent and self._store_failure:
                self._store_failure = ""
                _log.warning("%s", self._event_sentence(0, "sends heartbeats again"))

    def _set_store_failure(self, event: str) -> None:
        """Record and log that the store is lost, and with it rank 0's host or process."""
        with self._state_changed:
            self._store_failure = event
            self._state_changed.notify_all()
        _log.error("%s", self._event_sentence(0, event))


@dataclass
class _Reports:
    """The reports that all ranks have made about themselves."""

    #: Ranks that have called `shutdown()`.
    arrived: set[int] = field(default_factory=set)
    #: Ranks that ended without an error and without `shutdown()`.
    left_early: set[int] = field(default_factory=set)
    #: For each rank that an error ended, `"ended with"` and the error.
    failed: dict[int, str] = field(default_factory=dict)
    #: Ranks that no longer use the store, for any reason.
    ended: set[int] = field(default_factory=set)

    @classmethod
    def parse(cls, data: bytes) -> _Reports:
        """Parse the reports of all ranks.

        Each report is a line of the form `RANK KIND DETAIL`. The detail may be empty.
        """
        reports = cls()
        for line in data.decode().splitlines():
            number, kind, detail = line.split(" ", 2)
            rank = int(number)
            if kind == "arrived":
                reports.arrived.add(rank)
                continue
            reports.ended.add(rank)
            if kind == "left-early":
                reports.left_early.add(rank)
            elif kind == "failed":
                reports.failed[rank] = f"ended with {detail}"
        return reports


def _in_batches(keys: list[str]) -> Iterator[list[str]]:
    """Yield the keys in batches of at most 500.

    TCPStore's server parses a request from its start whenever another part of it arrives, so a request with
    many keys is slow.
    """
    for start in range(0, len(keys), _BATCH):
        yield keys[start : start + _BATCH]


def _rank_that_watches_rank_0(hosts: Sequence[str]) -> int:
    """Return the rank that watches rank 0: the first rank on a different host, or otherwise rank 1."""
    # A rank on another host also detects that rank 0's host is lost.
    for rank, host in enumerate(hosts):
        if host != hosts[0]:
            return rank
    return 1


def _library_pattern(communication: str) -> re.Pattern[str] | None:
    """Return a pattern that matches the names of the communication libraries, or `None` without a library.

    For example, the pattern for `"cpu:gloo,cuda:nccl"` matches gloo and nccl.
    """
    names = set()
    for device_and_backend in communication.split(","):
        _, _, backend = device_and_backend.rpartition(":")
        names.add(backend.strip().lower())
    names.discard("")
    if "staged" in names:
        names.add("gloo")  # The backend "staged" calls gloo.
    if not names:
        return None
    alternatives = "|".join(re.escape(name) for name in sorted(names))
    not_within_a_word = "(?<![a-z])"
    return re.compile(f"{not_within_a_word}(?:{alternatives})", re.IGNORECASE)


def _is_collective_error(
    error: BaseException, library_pattern: re.Pattern[str] | None
) -> bool:
    """Return whether a collective raised `error`, so that a lost rank may be the cause.

    A collective raised the error if its class is `CommunicationError` or torch's `DistError`, if its message
    contains the name of a communication library, or if its traceback ends in torch.distributed. Words such
    as "timed out" are not considered, because a data loader's errors also contain them.
    """
    if not isinstance(error, RuntimeError):
        return False
    if isinstance(error, CommunicationError):
        return True
    distributed = import_torch().distributed
    # Old versions of torch do not have this class.
    if hasattr(distributed, "DistError") and isinstance(error, distributed.DistError):
        return True
    if library_pattern is not None and library_pattern.search(str(error)):
        return True
    # If no name occurs in the message, the place where the error was raised decides.
    raising_module = ""
    for frame, _line in traceback.walk_tb(error.__traceback__):
        raising_module = frame.f_globals.get("__name__", "")
    return raising_module == "torch.distributed.distributed_c10d"
