"""`python -m benchmarks.watch`: rank 0's watch on thousands of ranks, by real connections.

One process plays all other ranks: it connects them, has them beat, kills one and one that speaks for its
host, and silences a host. The ranks of one host run the real watch; of the others, one speaks for its host.
Rank 0 is a process of its own, of which the processor time of the watch is taken. Needs as many open files
as rank 0 has lines.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from accel_train.launch import line
from accel_train.launch.watch import Watch, speakers
from benchmarks.harness import Row, show

#: Ranks of each row, on hosts of eight; seconds of beats that are measured; seconds that count as silence.
_RANKS, _ON_A_HOST, _SECONDS, _SILENCE = (1000, 4000, 8000), 8, 10.0, 10.0
#: Bounds: seconds of processor time each second, and seconds until all ranks know of a loss.
_CPU, _KNOWN = 0.03, 2 * _SILENCE
#: Ranks of the host whose watches are real.
_REAL = range(_ON_A_HOST, 2 * _ON_A_HOST)

ZERO = """
import json, sys, time
from accel_train.launch import line, watch
ranks, silence = int(sys.argv[1]), float(sys.argv[2])
listener = line.listen()
zero = watch.Watch(0, [f"host{rank // 8}" for rank in range(ranks)], silence, name="round", listener=listener)
zero.start()
print(listener.getsockname()[1], flush=True)
for _ in sys.stdin:
    known = len(zero._lines) + len(zero._through)
    print(json.dumps([time.process_time(), known, len(zero._lines), sorted(zero._matters)]), flush=True)
"""


class Others:
    """All ranks but rank 0, which answer what they hear, and beat once a second."""

    def __init__(self, ranks: int, port: int) -> None:
        self._hosts = [f"host{rank // _ON_A_HOST}" for rank in range(ranks)]
        self._port, self._speakers = port, speakers(self._hosts)
        self.lines: dict[int, socket.socket] = {}
        self.knows: dict[int, set[int]] = {}
        self.silent: set[int] = set()
        self._unread: dict[int, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self.real: dict[int, Watch] = {}
        self._real_port = 0
        for rank in _REAL:
            self._join(rank)
        self._interval = self.real[_REAL[0]].interval
        for rank in range(1, ranks):
            if rank not in _REAL and (speaker := self._speakers[rank]) == rank:
                self._connect(rank)
            elif rank not in _REAL:
                self.lines[speaker].sendall(line.message("for", [rank, "hello", None]))
        for each in self.lines.values():
            each.setblocking(False)

    def _connect(self, rank: int) -> None:
        made = socket.create_connection(("127.0.0.1", self._port))
        made.sendall(line.message("hello", ["round", rank]))
        self._selector.register(made, selectors.EVENT_READ, rank)
        self.lines[rank], self.knows[rank], self._unread[rank] = made, set(), b""

    def _join(self, rank: int) -> None:
        """A rank with the real watch."""
        listener, speaker = None, self._speakers[rank]
        if rank == _REAL[0]:
            listener = line.listen("127.0.0.1")
            self._real_port = listener.getsockname()[1]

        def call(timeout: float) -> line.Line:
            return line.call(["127.0.0.1"], self._port, "round", rank, timeout)

        if speaker == rank:
            mine = call(10)
        else:
            mine = line.call(["127.0.0.1"], self._real_port, "round", rank, 10)
            mine.rank = speaker
        self.real[rank] = Watch(
            rank,
            self._hosts,
            _SILENCE,
            name="round",
            listener=listener,
            line=mine,
            call=call,
        )
        self.real[rank].start()

    def beat(self, seconds: float, until: set[int] | None = None) -> float:
        """Beat for so long, or until all others know that these ranks are lost; the seconds that it took."""
        began = beaten = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            if now >= beaten:
                beaten = now + self._interval
                for rank, each in self.lines.items():
                    if rank not in self.silent:
                        each.send(line.message("beat"))
            for key, _ in self._selector.select(0.05):
                self._hear(key.data)
            alive = [
                known for rank, known in self.knows.items() if rank not in self.silent
            ]
            alive += [set(watch._matters) for watch in self.real.values()]
            if until is not None and all(known >= until for known in alive):
                break
        return time.monotonic() - began

    def _hear(self, rank: int) -> None:
        *whole, self._unread[rank] = (
            self._unread[rank] + self.lines[rank].recv(1 << 16)
        ).split(b"\n")
        for word, detail in map(json.loads, whole):
            if word == "lost":
                self.knows[rank] = set(map(int, detail))

    def kill(self, rank: int) -> None:
        """The kernel closes the lines of a killed process."""
        watch = self.real.pop(rank)
        watch._stop.set()
        watch._there.send(b"!")
        watch._thread.join()
        for each in (*watch._all_lines(), watch._listener):
            if each is not None:
                each.close()


def measure(ranks: int) -> list[Row]:
    """The rows of a job of so many ranks."""
    zero = subprocess.Popen(
        [sys.executable, "-c", ZERO, str(ranks), str(_SILENCE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert zero.stdin is not None
    assert zero.stdout is not None

    def ask(known: int, lost: set[int]) -> tuple[float, int]:
        """Rank 0's processor time and its lines; it must know these ranks, and that those are lost."""
        print(file=zero.stdin, flush=True)
        seconds, *found = json.loads(zero.stdout.readline())
        assert (found[0], found[2]) == (known, sorted(lost)), found
        return seconds, found[1]

    others = Others(ranks, int(zero.stdout.readline()))
    others.beat(3.0)
    before, lines = ask(ranks - 1, set())
    took = others.beat(_SECONDS)
    cpu = (ask(ranks - 1, set())[0] - before) / took
    name = f"{ranks} ranks, {lines} lines"
    rows = [
        Row(
            f"{name}: processor time of rank 0's watch",
            "each second",
            cpu,
            1.0,
            cpu,
            _CPU,
        )
    ]

    def known(what: str, happens: Callable[[], object], now_lost: set[int]) -> None:
        lost.update(now_lost)
        happens()
        seconds = others.beat(60.0, lost)
        rows.append(
            Row(
                f"{name}: {what}, all know",
                "at most",
                seconds,
                _KNOWN,
                seconds,
                _KNOWN,
                "s",
            )
        )

    lost: set[int] = set()
    speaker, rank = _REAL[0], _REAL[-1]
    known("a rank dies", lambda: others.kill(rank), {rank})
    known(
        "a rank that speaks for its host dies", lambda: others.kill(speaker), {speaker}
    )
    others.beat(1.5 * _SILENCE)
    ask(ranks - 3, lost)  # those for whom it spoke have called
    host = set(range(ranks - _ON_A_HOST, ranks))
    known("a host falls silent", lambda: others.silent.update(host), host)
    ask(ranks - 3, lost)
    zero.kill()
    zero.wait()
    return rows


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps({"load before": os.getloadavg()[0]}))
    sys.exit(
        show(
            "watch",
            "Rank 0's watch on a job",
            [row for ranks in _RANKS for row in measure(ranks)],
        )
    )
