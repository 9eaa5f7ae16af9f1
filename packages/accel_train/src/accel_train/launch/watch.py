"""Each rank sends regular signs of life to rank 0, which watches all ranks and informs the others.

A killed process closes its connection; a silent one does not. Silence is logged at once and ends nothing: a
collective ends by its timeout, and at the end of the job every rank whose connection stands is waited for
(see `line.py`).
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from accel_core.errors import CommunicationError, RankLostError
from accel_core.toolkit import import_torch
from accel_train.launch.line import FULL, UNANSWERED, Line, make_room, message

__all__ = ["Watch"]

_log = logging.getLogger("accel_train")
#: What is the matter with a rank: not heard of; ended in good order, before the others; lost for good.
_SILENT, _LEFT, _LOST = "silent", "left", "lost"


#: What rank 0 answers to a sign of life.
_ANSWER = message("beat", [])


class _Matter(NamedTuple):
    """A rank's trouble, and its description."""

    kind: str
    text: str


class Watch:
    """This rank's signs of life, its watch on the others, and the end that all ranks reach together.

    `listener` is rank 0's socket, `line` the connection of any other rank; a job of one rank has neither.
    `name` is the round's name; rank 0 accepts connections only with it. `library` is the name of the
    communication backend.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        silence: float,
        *,
        name: str = "",
        listener: socket.socket | None = None,
        line: Line | None = None,
        library: str = "",
    ) -> None:
        self._rank, self._hosts, self._silence, self._name = rank, hosts, silence, name
        self._libraries = _libraries(library)
        #: Seconds between beats; in a job of thousands rank 0 has as many to answer.
        self.interval = min(max(1.0, len(hosts) / 1000), silence / (5 if len(hosts) <= 1000 else 2.5))
        self._others = frozenset(range(len(hosts))) - {rank}
        self._watched = self._others if rank == 0 else self._others & {0}
        self._listener = listener
        self._lines: dict[int, Line] = {}
        self._selector = selectors.DefaultSelector()
        self._here, self._there = socket.socketpair()  # to wake the thread
        self._selector.register(self._here, selectors.EVENT_READ)
        #: Ranks on whose lines nothing was ever said, and whether there may be no room for them.
        self._strangers = set(self._watched)
        self._is_full = self._was_full = False
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ)
            if missing := make_room(len(hosts)):
                self._say_full(f"{missing} open files are missing for a job of {len(hosts)} ranks")
        if line is not None:
            self._lines[0] = line
            self._selector.register(line, selectors.EVENT_READ, line)
        self._heard: dict[int, float] = {}
        self._answered = True
        # What follows is the thread's to change and anybody's to read, under this lock.
        self._changed = threading.Condition()
        self._matters: dict[int, _Matter] = {}
        self._leaving: set[int] = set()
        self._gone: set[int] = set()
        self._all_leave = not self._others
        self._waited_for: list[int] = []
        self._hurried = False
        self._stop = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="accel-watch", daemon=True)

    def start(self) -> None:
        """Start to send signs of life and to watch."""
        self._heard = dict.fromkeys(self._watched, time.monotonic())
        if self._others:
            self._thread.start()

    def stop(self, failure: str = "") -> None:
        """End the watch, and tell the others that this rank has left, or the `failure` that ended it."""
        if self._stop.is_set() or os.getpid() != self._process:  # a forked child has no part in this
            return
        self._stop.set()
        if self._thread.is_alive():
            self._there.send(b"!")
            self._thread.join()
        word, detail = ("failed", failure[:500]) if failure else ("done", None)
        for line in self._lines.values():
            line.say(word, detail)
            line.finish()
        # Until they have closed, too: who closes with something unheard takes back what it said last.
        end = time.monotonic() + self.interval
        while self._lines and (left := end - time.monotonic()) > 0:
            self._listen(left)
        for held in (*self._lines.values(), self._listener, self._here, self._there, self._selector):
            if held is not None:
                held.close()

    # What others ask

    @property
    def trouble(self) -> bool:
        """Return whether a rank is lost or silent."""
        return any(matter.kind != _LEFT for matter in dict(self._matters).values())

    def loss(self, *, at_the_end: bool = False) -> RankLostError | None:
        """Return the error for a rank that is lost now; `None` if none is.

        `at_the_end`: a silent rank is not lost then, but a rank that left before the others is.
        """
        matters = dict(self._matters)
        kinds = [(_LOST,), (_LEFT,)] if at_the_end else [(_SILENT, _LOST)]
        for wanted in kinds:
            found = {rank: matter.text for rank, matter in sorted(matters.items()) if matter.kind in wanted}
            if found:
                return RankLostError("; ".join(found.values()), ranks=tuple(found))
        return None

    def explain(self, error: BaseException) -> RankLostError | None:
        """Return the lost rank that caused `error`, which ends this rank; `None` if no rank is lost.

        For an error of a collective, this waits as long as it takes to notice that a rank is silent. Any
        other error is sent to the other ranks, which are about to miss this one.
        """
        if isinstance(error, RankLostError):
            return None
        loss = None
        if _is_about_peers(error, self._libraries):
            end = time.monotonic() + self._silence + 3 * self.interval
            with self._changed:
                while not self.trouble and (left := end - time.monotonic()) > 0:
                    self._changed.wait(left)
            loss = self.loss()
        if loss is None:
            self.stop(f"{type(error).__name__}: {error}")
        return loss

    def gather(self, timeout: float) -> None:
        """Wait until every rank has reached the end.

        Raises `RankLostError` if a rank is lost, left early, or does not come within `timeout` seconds.
        """
        end = time.monotonic() + timeout
        with self._changed:
            self._hurried = True
            for line in self._lines.values():
                line.hurry(self._silence)
            if self._rank == 0:
                self._arrive(0)
            elif 0 in self._lines:
                self._lines[0].say("leaving")
            while not self._all_leave:
                if loss := self.loss(at_the_end=True):
                    raise loss
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            else:
                return
            missing = self._missing(timeout)
        self.stop(f"RankLostError: {missing}")
        raise missing

    def part(self) -> None:
        """Call it after `gather`, when this rank needs the store no more: wait for ranks that still need it.

        Rank 0 waits for all others. The others wait for its `stop()`, before which it gives up the store, so
        that a new start does not find the old store. A rank that is stopped now is waited for only briefly.
        """
        end = time.monotonic() + max(5.0, self._silence)
        with self._changed:
            if self._rank != 0 and 0 in self._lines:
                self._lines[0].say("gone")
            while not self._gone >= self._watched and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _missing(self, timeout: float) -> RankLostError:
        """The error for ranks whose lines stand, and that do not come to the end."""
        absent = sorted(self._others - self._leaving) if self._rank == 0 else self._waited_for or [0]
        return RankLostError(
            f"rank {self._rank} (host {self._hosts[self._rank]}) waited {timeout:g} s at the end for "
            f"{', '.join(f'rank {r}' for r in absent)}: still at work, or stopped",
            ranks=tuple(absent),
        )

    # The thread

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._listen(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if now >= due:
                if now - due > self.interval:  # this process was away itself: stopped, or starved
                    self._heard.update(dict.fromkeys(self._watched, now))
                self._beat()
                self._judge(now)
                due = now + self.interval

    def _listen(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            line: Line | None = key.data
            if line is not None:
                for word, detail in line.hear():
                    if not self._stop.is_set():
                        self._take(line, word, detail)
                if line.end:
                    self._ended(line)
            elif key.fileobj is self._here:
                self._here.recv(1)
            elif self._listener is not None:
                self._accept(self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in FULL:  # asked again at once, it would fail at once: the next beat asks
                self._selector.unregister(listener)
                self._is_full = True
                self._say_full(f"rank 0 cannot accept more than {len(self._lines)} connections: {error}")
            return
        line = Line(connection)
        self._selector.register(line, selectors.EVENT_READ, line)

    def _say_full(self, what: str) -> None:
        if not self._was_full:
            self._was_full = True
            _log.warning(
                "%s. Ranks that do not fit are not watched, and cannot start. Raise the hard limit of open "
                "files on the host of rank 0: ulimit -Hn %d",
                what,
                2 * len(self._hosts) + 1024,
            )

    def _beat(self) -> None:
        if self._is_full and self._listener is not None:
            self._is_full = False
            self._selector.register(self._listener, selectors.EVENT_READ)
        for line in self._lines.values():
            line.flush()
        # At most one is on its way: a rank that is stopped for hours must not find its line full.
        if self._rank != 0 and 0 in self._lines and self._answered:
            self._answered = False
            self._lines[0].say("beat")

    def _take(self, line: Line, word: str, detail: Any) -> None:
        """A message has come."""
        rank = line.rank
        if rank < 0:
            self._introduce(line, word, detail)
            return
        self._heard[rank] = time.monotonic()
        if word == "beat" and self._rank == 0 and rank not in self._leaving:
            line.send(_ANSWER)  # thousands a second, of which nobody waits for one
            return
        with self._changed:
            if word == "beat" and self._rank == 0:
                line.say("beat", sorted((self._others | {0}) - self._leaving))
            elif word == "beat":
                self._answered, self._waited_for = True, detail
            elif word == "lost":
                kept = {rank: matter for rank, matter in self._matters.items() if rank in self._watched}
                told = {int(rank): _Matter(*matter) for rank, matter in detail.items()}
                told.pop(self._rank, None)
                self._report({**told, **kept})
            elif word == "leaving":
                self._arrive(rank)
            elif word == "all":
                self._all_leave = True
            elif word == "gone":
                self._gone.add(rank)
            elif word == "failed":
                self._note(rank, _LOST, f"ended with {detail}")
            elif word == "done" and not self._all_leave:
                self._note(rank, _LEFT, "left without shutdown()")
            self._changed.notify_all()

    def _introduce(self, line: Line, word: str, detail: Any) -> None:
        """On rank 0: somebody says who it is."""
        known = word == "hello" and isinstance(detail, list) and len(detail) == 2 and detail[0] == self._name
        rank = detail[1] if known and type(detail[1]) is int else None
        if rank not in self._others or rank in self._lines:
            line.end = line.end or "not one of us"
            return
        with self._changed:
            line.rank = rank
            self._heard[line.rank] = time.monotonic()
            line.say("hello", self._name)
            self._lines[line.rank] = line
            self._strangers.discard(line.rank)
            if self._hurried:
                line.hurry(self._silence)
            if self._matters:
                line.say("lost", self._matters)

    def _ended(self, line: Line) -> None:
        """Nothing more will come from a line."""
        self._selector.unregister(line)
        line.close()
        if line.rank < 0:
            return
        with self._changed:
            del self._lines[line.rank]
            before = self._matters.get(line.rank)
            if not self._ending and (before is None or before.kind == _SILENT):
                text = "ended without a message: it was killed, or it crashed"
                if line.end == UNANSWERED:
                    text = f"{self._silent}, and its host does not answer"
                self._note(line.rank, _LOST, text)
            self._gone.add(line.rank)
            self._changed.notify_all()

    def _arrive(self, rank: int) -> None:
        """On rank 0: a rank has come to the end."""
        self._leaving.add(rank)
        if self._leaving >= self._others | {0}:
            self._all_leave = True
            for line in self._lines.values():
                line.say("all")

    # Judging

    @property
    def _ending(self) -> bool:
        """Whether a line that ends is in order now."""
        return self._all_leave or self._stop.is_set()

    @property
    def _silent(self) -> str:
        return f"has been silent for {self._silence:g} s"

    def _judge(self, now: float) -> None:
        with self._changed:
            matters = dict(self._matters)
            for rank in self._watched - self._strangers if self._was_full else self._watched:
                silent = now - self._heard[rank] > self._silence
                if silent and rank not in matters and rank not in self._gone:
                    matters[rank] = self._matter(rank, _SILENT, self._silent)
                elif not silent and rank in matters and matters[rank].kind == _SILENT:
                    del matters[rank]
            self._report(matters)  # once, however many fell silent
            self._changed.notify_all()

    def _note(self, rank: int, kind: str, text: str) -> None:
        self._report({**self._matters, rank: self._matter(rank, kind, text)})

    def _matter(self, rank: int, kind: str, text: str) -> _Matter:
        return _Matter(kind, f"rank {rank} (host {self._hosts[rank]}) {text}")

    def _report(self, matters: dict[int, _Matter]) -> None:
        """Take over what is the matter; say what of it is new, to the log and, on rank 0, to the others."""
        before, self._matters = self._matters, matters
        if matters == before:
            return
        if self._rank == 0:
            told = message("lost", matters)
            for line in self._lines.values():
                line.send(told)
        for rank, matter in matters.items():
            if matter != before.get(rank) and matter.kind != _LEFT:
                _log.error("%s", matter.text)
        for rank, matter in before.items():
            if rank not in matters and matter.kind == _SILENT:
                _log.warning("rank %d (host %s) has answered again", rank, self._hosts[rank])


def _libraries(communication: str) -> re.Pattern[str] | None:
    """Give the words in the communication backend's errors: `"cpu:gloo,cuda:nccl"` names two."""
    names = {part.rpartition(":")[2].strip().lower() for part in communication.split(",")}
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
    if isinstance(error, (CommunicationError, getattr(import_torch().distributed, "DistError", ()))):
        return True
    if libraries is not None and libraries.search(str(error)):
        return True
    where = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return where[-1:] == ["torch.distributed.distributed_c10d"]
