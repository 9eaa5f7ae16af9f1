"""Each rank sends regular signs of life to rank 0, which watches all ranks and informs the others.

A killed process closes its connection; a silent one does not. Silence is logged at once and ends nothing: a
collective ends by its timeout, and at the end of the job every rank whose connection stands is waited for
(see `line.py`).

In a large job the first rank of each host speaks for its host: it holds the line to rank 0, and the others
of the host a line to it. Whoever loses its speaker, or hears nothing of it, calls rank 0 itself.
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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel_core.errors import CommunicationError, RankLostError
from accel_core.torch_import import import_torch
from accel_train.launch.agreement import enumerated
from accel_train.launch.line import FULL, UNANSWERED, Line, make_room, message

__all__ = ["Watch", "speakers"]

_log = logging.getLogger("accel_train")
#: What is the matter with a rank: not heard of; ended in good order, before the others; lost for good.
_SILENT, _LEFT, _LOST = "silent", "left", "lost"
#: What answers a sign of life where no rank is waited for.
_ANSWER = message("beat", [])
#: Ranks of the largest job in which each has a line to rank 0 of its own.
_DIRECT = 1000
#: Ranks that one error, or one look at all ranks, names at most.
_NAMED = 8
#: Seconds for one call of rank 0 by a rank that has lost its speaker; the next beat calls again.
_CALL = 2.0


def speakers(hosts: Sequence[str]) -> list[int]:
    """Return for each rank the rank that speaks for it: itself, or in a large job the first of its host.

    On the host of rank 0 each speaks for itself.
    """
    if len(hosts) <= _DIRECT:
        return list(range(len(hosts)))
    first: dict[str, int] = {}
    return [
        rank if host == hosts[0] else first.setdefault(host, rank)
        for rank, host in enumerate(hosts)
    ]


class _Matter(NamedTuple):
    """A rank's trouble, and its description."""

    kind: str
    text: str


class Watch:
    """This rank's signs of life, its watch on the others, and the end that all ranks reach together.

    `listener` is the socket of rank 0, or of a rank that speaks for others. `line` is the connection of any
    rank but 0: to rank 0, or to the rank that speaks for this one. `call` opens another to rank 0 within
    some seconds. A job of one rank has none of these. `name` is the round's name; connections are accepted
    only with it. `library` is the name of the communication backend.
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
        call: Callable[[float], Line] | None = None,
        library: str = "",
    ) -> None:
        self._rank, self._hosts, self._silence, self._name = rank, hosts, silence, name
        self._libraries = _libraries(library)
        spoken = speakers(hosts)
        lines = len(set(spoken))
        #: Seconds between beats; with thousands of lines rank 0 has as many to answer.
        self.interval = min(
            max(1.0, lines / 1000), silence / (5 if lines <= 1000 else 2.5)
        )
        self._others = frozenset(range(len(hosts))) - {rank}
        #: Ranks that may call this one.
        self._callers = (
            self._others
            if rank == 0
            else {r for r in self._others if spoken[r] == rank}
        )
        self._listener, self._up, self._call = listener, line, call
        self._lines: dict[int, Line] = {}  # of those that have called
        self._selector = selectors.DefaultSelector()
        self._here, self._there = socket.socketpair()  # to wake the thread
        self._selector.register(self._here, selectors.EVENT_READ)
        #: Ranks of whom nothing was ever heard, and whether there may be no room for them.
        self._strangers = set(self._others) if rank == 0 else set()
        self._is_full = self._was_full = False
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ)
            if missing := make_room(lines if rank == 0 else len(self._callers)):
                self._say_full(
                    f"{missing} open files are missing for a job of {len(hosts)} ranks"
                )
        if line is not None:
            self._selector.register(line, selectors.EVENT_READ, line)
        #: When each rank was last heard that this one hears itself.
        self._heard: dict[int, float] = {}
        #: On rank 0, who speaks for a rank; and who is silent in the words of the rank that speaks for it.
        self._through: dict[int, int] = {}
        self._said_silent: set[int] = set()
        self._answered, self._must_call = True, False
        self._sent: list[str] = []  # what another line has to be told again
        #: What answers a beat, on rank 0 only by the lines of ranks that wait for others.
        self._answer, self._asking = _ANSWER, set[int]()
        self._has_news = False
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
        self._thread = threading.Thread(
            target=self._run, name="accel-watch", daemon=True
        )

    def start(self) -> None:
        """Start to send signs of life and to watch."""
        watched = (
            self._others
            if self._rank == 0
            else {self._up.rank if self._up is not None else 0}
        )
        self._heard = dict.fromkeys(watched, time.monotonic())
        if self._others:
            self._thread.start()

    def stop(self, failure: str = "") -> None:
        """End the watch, and tell the others that this rank has left, or the `failure` that ended it."""
        if (
            self._stop.is_set() or os.getpid() != self._process
        ):  # a forked child has no part in this
            return
        self._stop.set()
        if self._thread.is_alive():
            self._there.send(b"!")
            self._thread.join()
        word, detail = ("failed", failure[:500]) if failure else ("done", None)
        for line in self._all_lines():
            if (
                self._rank == 0 or line is self._up
            ):  # to those it speaks for, a speaker is only a line
                line.say(word, detail)
            line.finish()
        # Until they have closed, too: who closes with something unheard takes back what it said last.
        end = time.monotonic() + self.interval
        while self._all_lines() and (left := end - time.monotonic()) > 0:
            self._listen(left)
        # Connections too that have not said yet who they are.
        listened: list[Any] = [key.fileobj for key in self._selector.get_map().values()]
        for held in (*listened, self._listener, self._there, self._selector):
            if held is not None:
                held.close()

    def _all_lines(self) -> list[Line]:
        return [*([self._up] if self._up is not None else []), *self._lines.values()]

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
            found = {
                rank: matter.text
                for rank, matter in sorted(matters.items())
                if matter.kind in wanted
            }
            if found:
                more = (
                    [f"and {len(found) - _NAMED} more ranks"]
                    if len(found) > _NAMED
                    else []
                )
                return RankLostError(
                    "; ".join([*found.values()][:_NAMED] + more), ranks=tuple(found)
                )
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
            for line in self._all_lines():
                line.hurry(self._silence)
            if self._rank == 0:
                self._arrive(0)
            else:
                self._say_up("leaving")
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
            if self._rank != 0:
                self._say_up("gone")
            awaited = self._others if self._rank == 0 else self._others & {0}
            while not self._gone >= awaited and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _say_up(self, word: str) -> None:
        """Tell rank 0, by this line and by each that follows it."""
        self._sent.append(word)
        if self._up is not None:
            self._up.say(word)

    def _missing(self, timeout: float) -> RankLostError:
        """The error for ranks whose lines stand, and that do not come to the end."""
        absent = (
            sorted(self._others - self._leaving)
            if self._rank == 0
            else self._waited_for or [0]
        )
        return RankLostError(
            f"rank {self._rank} (host {self._hosts[self._rank]}) waited {timeout:g} s at the end for "
            f"{enumerated(absent, _NAMED)}: still at work, or stopped",
            ranks=tuple(absent),
        )

    # The thread

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._listen(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if now >= due:
                if (
                    now - due > self.interval
                ):  # this process was away itself: stopped, or starved
                    self._heard.update(dict.fromkeys(self._heard, now))
                self._beat()
                self._judge(now)
                due = now + self.interval
            if self._must_call and self._call is not None:
                self._call_rank_0(self._call)
            if self._has_news:  # once, however many were lost
                self._has_news = False
                told = message("lost", self._matters)
                for line in self._lines.values():
                    line.send(told)

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
            if (
                error.errno in FULL
            ):  # asked again at once, it would fail at once: the next beat asks
                self._selector.unregister(listener)
                self._is_full = True
                self._say_full(
                    f"rank 0 cannot accept more than {len(self._lines)} connections: {error}"
                )
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
        for line in self._all_lines():
            line.flush()
        if self._rank == 0 and self._leaving:
            self._answer = message("beat", sorted((self._others | {0}) - self._leaving))
        # At most one is on its way: a rank that is stopped for hours must not find its line full.
        if self._up is not None and self._answered:
            self._answered = False
            self._up.say("beat")

    def _call_rank_0(self, call: Callable[[float], Line]) -> None:
        """Call rank 0 in place of a speaker that has ended, or is silent."""
        try:
            line = call(_CALL)
        except OSError as error:
            if not isinstance(error, TimeoutError):  # nobody listens there
                with self._changed:
                    self._must_call = False
                    self._lose(0, "")
                    self._changed.notify_all()
            return
        with self._changed:
            self._must_call, self._answered = False, True
            self._up, self._heard = line, {0: time.monotonic()}
            self._selector.register(line, selectors.EVENT_READ, line)
            for word in self._sent:
                line.say(word)
            if self._hurried:
                line.hurry(self._silence)

    def _take(self, line: Line, word: str, detail: Any) -> None:
        """A message has come."""
        rank = line.rank
        if rank < 0:
            self._introduce(line, word, detail)
            return
        self._heard[rank] = time.monotonic()
        if word == "beat" and line is not self._up:
            # Thousands a second, of which nobody waits for one.
            line.send(
                self._answer if self._rank != 0 or rank in self._asking else _ANSWER
            )
            return
        with self._changed:
            if line is self._up:
                self._obey(word, detail)
            elif self._rank != 0:
                self._speak_for(rank, word, detail)
            elif word == "for":
                self._take_for(rank, *detail)
            else:
                self._learn(rank, word, detail)
            self._changed.notify_all()

    def _obey(self, word: str, detail: Any) -> None:
        """Take what rank 0 says, or who speaks for this rank."""
        if word == "beat":
            self._answered, self._waited_for = True, detail
            self._answer = message("beat", detail) if detail else _ANSWER
        elif word == "lost":
            told = {int(rank): _Matter(*matter) for rank, matter in detail.items()}
            told.pop(self._rank, None)
            if 0 in self._heard and 0 in self._matters:
                told[0] = self._matters[0]
            self._report(told)
        elif word == "all":
            self._end_all()
        else:
            self._learn(0, word, detail)

    def _learn(self, rank: int, word: str, detail: Any) -> None:
        """Take what a rank says of itself."""
        if word == "leaving":
            self._arrive(rank)
        elif word == "gone":
            self._gone.add(rank)
        elif word == "failed":
            self._note(rank, _LOST, f"ended with {detail}")
        elif word == "done" and not self._all_leave:
            self._note(rank, _LEFT, "left without shutdown()")

    def _speak_for(self, rank: int, word: str, detail: Any = None) -> None:
        if self._up is not None:
            self._up.say("for", [rank, word, detail])

    def _take_for(self, speaker: int, rank: int, word: str, detail: Any) -> None:
        """On rank 0: take what a rank says of another of its host."""
        if word == "hello":
            if rank in self._others and rank not in self._lines:
                self._through[rank] = speaker
                self._heard.pop(rank, None)
                self._strangers.discard(rank)
        elif self._through.get(rank) != speaker:  # it has called by itself since
            return
        elif word == "silent":
            self._said_silent.add(rank)
        elif word == "heard":
            self._said_silent.discard(rank)
        elif word == "ended":
            self._part_from(rank)
            self._lose(rank, detail)
        else:
            self._learn(rank, word, detail)

    def _part_from(self, rank: int) -> None:
        """On rank 0: nobody speaks for a rank any more; it has as long to call as silence takes."""
        self._heard[rank] = time.monotonic()
        self._through.pop(rank, None)
        self._said_silent.discard(rank)

    def _introduce(self, line: Line, word: str, detail: Any) -> None:
        """Somebody says who it is."""
        known = (
            word == "hello"
            and isinstance(detail, list)
            and len(detail) == 2
            and detail[0] == self._name
        )
        rank = detail[1] if known and type(detail[1]) is int else -1
        if rank not in self._callers or rank in self._lines:
            line.end = line.end or "not one of us"
            return
        with self._changed:
            line.rank = rank
            self._part_from(rank)
            line.say("hello", self._name)
            self._lines[rank] = line
            self._strangers.discard(rank)
            if self._hurried:
                line.hurry(self._silence)
            if self._matters:
                line.say("lost", self._matters)
            if self._all_leave:
                line.say("all")
            if self._rank != 0:
                self._speak_for(rank, "hello")

    def _ended(self, line: Line) -> None:
        """Nothing more will come from a line."""
        self._selector.unregister(line)
        line.close()
        if line.rank < 0:
            return
        with self._changed:
            if line is self._up:
                self._up = None
                if line.rank == 0 or self._ending:
                    self._lose(0, line.end)
                else:
                    self._must_call = True
                    self._heard = {0: time.monotonic()}
            else:
                del self._lines[line.rank]
                if self._rank == 0:
                    self._lose(line.rank, line.end)
                else:
                    self._heard.pop(line.rank)
                    self._speak_for(line.rank, "ended", line.end)
            self._changed.notify_all()

    def _lose(self, rank: int, end: str) -> None:
        """A rank has ended, perhaps in good order."""
        before = self._matters.get(rank)
        if not self._ending and (before is None or before.kind == _SILENT):
            text = "ended without a message: it was killed, or it crashed"
            if end == UNANSWERED:
                text = f"{self._silent}, and its host does not answer"
            self._note(rank, _LOST, text)
        self._gone.add(rank)

    def _arrive(self, rank: int) -> None:
        """On rank 0: a rank has come to the end."""
        self._leaving.add(rank)
        self._asking.add(self._through.get(rank, rank))
        if len(self._leaving) == len(self._hosts):
            self._end_all()

    def _end_all(self) -> None:
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
            silent = {
                rank
                for rank, heard in self._heard.items()
                if now - heard > self._silence
            }
            if self._rank == 0:
                silent |= {
                    rank for rank, speaker in self._through.items() if speaker in silent
                }
                silent |= self._said_silent
                silent -= self._strangers if self._was_full else set()
            else:
                mine = silent & self._callers
                for rank in mine ^ self._said_silent:
                    self._speak_for(rank, "silent" if rank in mine else "heard")
                self._said_silent = mine
                silent &= {0}
            own = self._others if self._rank == 0 else self._heard.keys() & {0}
            matters = {
                rank: matter
                for rank, matter in self._matters.items()
                if matter.kind != _SILENT or rank in silent or rank not in own
            }
            for rank in silent - self._gone - set(matters):
                matters[rank] = self._matter(rank, _SILENT, self._silent)
            self._report(matters)
            if (
                self._up is not None
                and now - self._heard[self._up.rank] > self._silence / 2
            ):
                self._leave_speaker(self._up)
            self._changed.notify_all()

    def _leave_speaker(self, line: Line) -> None:
        """Call rank 0 in place of a speaker that does not answer."""
        if line.rank != 0:
            self._selector.unregister(line)
            line.close()
            self._up, self._must_call = None, True
            self._heard = {0: self._heard[line.rank]}

    def _note(self, rank: int, kind: str, text: str) -> None:
        self._report({**self._matters, rank: self._matter(rank, kind, text)})

    def _matter(self, rank: int, kind: str, text: str) -> _Matter:
        return _Matter(kind, f"rank {rank} (host {self._hosts[rank]}) {text}")

    def _report(self, matters: dict[int, _Matter]) -> None:
        """Take over what is the matter; say what of it is new, to the log and to those who have called."""
        before, self._matters = self._matters, matters
        if matters == before:
            return
        self._has_news = True
        new = [
            m.text
            for rank, m in matters.items()
            if m != before.get(rank) and m.kind != _LEFT
        ]
        for text in new[:_NAMED]:
            _log.error("%s", text)
        if len(new) > _NAMED:
            _log.error("and %d more ranks", len(new) - _NAMED)
        for rank, matter in before.items():
            if rank not in matters and matter.kind == _SILENT:
                _log.warning(
                    "rank %d (host %s) has answered again", rank, self._hosts[rank]
                )


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
