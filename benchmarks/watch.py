"""`python -m benchmarks.watch [RANKS ...]`: rank 0's watch on thousands of ranks, by real connections.

One process plays all other ranks: it connects each, has it beat, kills one, and silences a host. Rank 0
is a process of its own, of which the processor time of the watch is taken. Needs as many open files as ranks.
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

from accel_train.launch.watch import Watch
from benchmarks.harness import Row, show

#: Ranks of each row, on hosts of eight; seconds of beats that are measured; seconds that count as silence.
_RANKS, _ON_A_HOST, _SECONDS, _SILENCE = (1000, 4000, 8000), 8, 10.0, 10.0
#: Bounds: seconds of processor time each second, and seconds until all ranks know of a loss.
_CPU, _KNOWN = 0.03, 2 * _SILENCE

ZERO = """
import json, sys, time
from accel_train.launch import line, watch
ranks, silence = int(sys.argv[1]), float(sys.argv[2])
listener = line.listen()
zero = watch.Watch(0, [f"host{rank // 8}" for rank in range(ranks)], silence, name="round", listener=listener)
zero.start()
print(listener.getsockname()[1], flush=True)
for _ in sys.stdin:
    lost = sorted(rank for rank, matter in zero._matters.items())
    print(json.dumps([time.process_time(), len(zero._lines), lost]), flush=True)
"""


class Others:
    """All ranks but rank 0, which answer what they hear, and beat once a second."""

    def __init__(self, ranks: int, port: int) -> None:
        self.lines: dict[int, socket.socket] = {}
        self.knows: dict[int, set[int]] = {}
        self.silent: set[int] = set()
        self._unread: dict[int, bytes] = {}
        self._interval = Watch(0, [""] * ranks, _SILENCE).interval
        self._selector = selectors.DefaultSelector()
        for rank in range(1, ranks):
            line = socket.create_connection(("127.0.0.1", port))
            line.sendall(json.dumps(["hello", ["round", rank]]).encode() + b"\n")
            line.setblocking(False)
            self._selector.register(line, selectors.EVENT_READ, rank)
            self.lines[rank], self.knows[rank], self._unread[rank] = line, set(), b""

    def beat(self, seconds: float, until: set[int] | None = None) -> float:
        """Beat for so long, or until all others know that these ranks are lost; the seconds that it took."""
        began = beaten = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            if now >= beaten:
                beaten = now + self._interval
                for rank, line in self.lines.items():
                    if rank not in self.silent:
                        line.send(b'["beat", null]\n')
            for key, _ in self._selector.select(0.05):
                self._hear(key.data)
            alive = (
                known for rank, known in self.knows.items() if rank in self.lines and rank not in self.silent
            )
            if until is not None and all(known >= until for known in alive):
                break
        return time.monotonic() - began

    def _hear(self, rank: int) -> None:
        *whole, self._unread[rank] = (self._unread[rank] + self.lines[rank].recv(1 << 16)).split(b"\n")
        for word, detail in map(json.loads, whole):
            if word == "lost":
                self.knows[rank] = set(map(int, detail))

    def kill(self, rank: int) -> None:
        """The kernel closes the line of a killed process."""
        line = self.lines.pop(rank)
        self._selector.unregister(line)
        line.close()


def measure(ranks: int) -> list[Row]:
    """The rows of a job of so many ranks."""
    zero = subprocess.Popen(
        [sys.executable, "-c", ZERO, str(ranks), str(_SILENCE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert zero.stdin is not None
    assert zero.stdout is not None

    def ask() -> list:  # type: ignore[type-arg]
        print(file=zero.stdin, flush=True)
        return list(json.loads(zero.stdout.readline()))

    others = Others(ranks, int(zero.stdout.readline()))
    others.beat(3.0)
    before, connected, lost = ask()
    assert (connected, lost) == (ranks - 1, []), (connected, lost)
    took = others.beat(_SECONDS)
    after, connected, lost = ask()
    assert (connected, lost) == (ranks - 1, []), (connected, lost)
    cpu = (after - before) / took
    dead = ranks // 2
    others.kill(dead)
    rank_known = others.beat(60.0, {dead})
    host = set(range(ranks - _ON_A_HOST, ranks))
    others.silent |= host
    host_known = others.beat(60.0, {dead, *host})
    zero.kill()
    zero.wait()
    name = f"{ranks} ranks on {ranks // _ON_A_HOST} hosts"
    return [
        Row(f"{name}: processor time of rank 0's watch", "each second", cpu, 1.0, cpu, _CPU),
        Row(f"{name}: a rank dies, all know", "at most", rank_known, _KNOWN, rank_known, _KNOWN, "s"),
        Row(f"{name}: a host falls silent, all know", "at most", host_known, _KNOWN, host_known, _KNOWN, "s"),
    ]


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sizes = [int(word) for word in sys.argv[1:]] or _RANKS
    print(json.dumps({"load before": os.getloadavg()[0]}))
    sys.exit(show("watch", "Rank 0's watch on a job", [row for ranks in sizes for row in measure(ranks)]))
