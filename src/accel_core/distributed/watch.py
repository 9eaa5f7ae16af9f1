"""Each rank beats in the store; rank 0 watches all beats and the others watch rank 0's.

A host whose packets are dropped closes no connection, so a collective that waits for it learns nothing but
its own timeout. The beats say which rank it was. A thread reports the loss at once, by `logging`; it ends
nothing: a beat may be late for other reasons, and the collective's timeout decides.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accel_core._support.torch_import import import_torch
from accel_core.errors import RankLostError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["Watch"]

_log = logging.getLogger("accel_core.distributed")
_DONE = "done"
_FAILED = "failed: "
#: What the errors of collectives have in them when a peer is gone, beside torch's own classes of error.
_PEER_ERRORS = (
    "gloo",
    "connection closed",
    "connection reset",
    "timed out",
    "timeout",
    "broken pipe",
    "socket",
)


class Watch:
    """This rank's beat, and its eye on the others."""

    def __init__(self, store: Store, rank: int, hosts: Sequence[str], silence: float, address: str) -> None:
        self._store = store
        self._rank = rank
        self._hosts = hosts
        self._silence = silence
        self._address = address
        #: Seconds between beats.
        self.interval = min(1.0, silence / 5)
        self._watched = [r for r in range(len(hosts)) if r != rank] if rank == 0 else [0]
        self._heard: dict[int, tuple[str, float]] = {}
        self._contact = time.monotonic()
        self._beats = 0
        self._lost: dict[int, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="accel-watch", daemon=True)

    @staticmethod
    def enter(store: Store, rank: int) -> None:
        """Put this rank's first beat into the store, before any other rank may look for it."""
        store.set(f"beat/{rank}", "0")
        if rank == 0:
            store.set("lost", "{}")

    def start(self) -> None:
        """Begin to beat and to watch."""
        self._contact = time.monotonic()
        self._thread.start()

    def stop(self, last_word: str = _DONE) -> None:
        """End the thread, the last beat being `last_word`: this rank is not lost, it has gone."""
        if self._stop.is_set():
            return
        self._stop.set()
        # A thread that comes back from C++ while Python ends would abort the process: its last question to
        # a store that does not answer takes `silence` seconds at most.
        self._thread.join(self._silence + self.interval)
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._store.set(f"beat/{self._rank}", last_word)

    def explain(self, error: BaseException) -> RankLostError | None:
        """The loss behind `error`, which ends this rank; `None` where it is this rank's own matter.

        An error of a collective is waited for: as long as a silent rank takes to be missed. Any other is
        told to the other ranks, who are about to miss this one.
        """
        if isinstance(error, RankLostError):
            return None
        if not _is_about_peers(error):
            self.stop(f"{_FAILED}{type(error).__name__}: {error}"[:500])
            return None
        end = time.monotonic() + self._silence + 3 * self.interval
        while time.monotonic() < end and not self.trouble:
            time.sleep(self.interval / 10)
        if self._rank == 0 and self._lost:
            time.sleep(2 * self.interval)  # the others learn from rank 0 which rank it was
        return self.loss()

    def loss(self) -> RankLostError | None:
        """The error for what is lost now; `None` where all is well."""
        lost = dict(self._lost)
        reason = "; ".join(lost.values()) or self._cut_off
        return RankLostError(reason, ranks=tuple(lost)) if reason else None

    @property
    def trouble(self) -> bool:
        """Whether a rank, or the way to the store, is lost."""
        return bool(self._lost or self._cut_off)

    @property
    def _cut_off(self) -> str:
        """The sentence that says that the store has not answered for too long; empty while it answers."""
        silent = time.monotonic() - self._contact
        if silent <= self._silence:
            return ""
        return (
            f"rank {self._rank} (host {self._hosts[self._rank]}) has not reached the job's store at "
            f"{self._address} for {silent:.0f} s: this host was cut off, or the store's host was lost"
        )

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(self.interval):
            now = time.monotonic()
            if now - last > self._silence / 2:
                self._heard.clear()  # it was this process that was away, stopped or starved
            try:
                self._round()
            except RuntimeError as error:
                _log.debug("the store does not answer: %s", error)
            else:
                self._contact = time.monotonic()
            last = time.monotonic()

    def _round(self) -> None:
        self._beats += 1
        self._store.set(f"beat/{self._rank}", str(self._beats))
        keys = [f"beat/{rank}" for rank in self._watched]
        values = self._get([*keys, "lost"])
        lost = {} if self._rank == 0 else {int(r): text for r, text in json.loads(values[-1]).items()}
        for rank, value in zip(self._watched, values, strict=False):
            if text := self._judge(rank, value):
                lost[rank] = text
        lost.pop(self._rank, None)
        if lost != self._lost:
            if self._rank == 0:
                self._store.set("lost", json.dumps(lost))
            self._report(lost)

    def _get(self, keys: list[str]) -> list[str]:
        if getattr(self._store, "has_extended_api", bool)():
            return [value.decode() for value in self._store.multi_get(keys)]
        return [self._store.get(key).decode() for key in keys]

    def _judge(self, rank: int, value: str) -> str:
        """What is wrong with a rank whose last beat is `value`; empty where nothing is."""
        now = time.monotonic()
        who = f"rank {rank} (host {self._hosts[rank]})"
        if value.startswith(_FAILED):
            return f"{who} ended with {value.removeprefix(_FAILED)}"
        before, since = self._heard.get(rank, ("", now))
        if value != before:
            since = now
            self._heard[rank] = (value, now)
        if value == _DONE or now - since <= self._silence:
            return ""
        return f"{who} was not heard of for {self._silence:g} s"

    def _report(self, lost: dict[int, str]) -> None:
        before, self._lost = self._lost, lost
        for rank, text in lost.items():
            if rank not in before:
                _log.error("%s", text)
        for rank in before:
            if rank not in lost:
                _log.warning("rank %d (host %s) is heard of again", rank, self._hosts[rank])


def _is_about_peers(error: BaseException) -> bool:
    """Whether a collective failed because of another rank, as far as the error tells."""
    if not isinstance(error, RuntimeError):
        return False
    if isinstance(error, getattr(import_torch().distributed, "DistError", ())):
        return True
    text = str(error).lower()
    return any(sign in text for sign in _PEER_ERRORS)
