"""`python -m benchmarks.heartbeats`: how fast a lost rank is named, and what the heartbeats cost rank 0.

All ranks are processes that are forked when torch is imported. They are real ranks, except for those of the
rows on rank 0's CPU time: one process holds the connections of all other ranks, and sends their
heartbeats. Each connection is one of torch's store, so that the limit of open files must be above the ranks.

The store looks up the name of each address: without a name server that answers, each connection may take
seconds. Then run it with `hosts: files` in /etc/nsswitch.conf.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed

from accel_train import init_process_group
from accel_train.launch.agreement import Record, agree
from accel_train.launch.failure_detector import FailureDetector, default_silence
from accel_train.launch.rendezvous import Rank, rendezvous
from benchmarks.harness import Row, show

#: Of the rows on time: ranks, seconds without a heartbeat, runs.
_RANKS, _SILENCE, _RUNS = 4, 3.0, 5
#: Of the rows on cost: ranks, and seconds of heartbeats that are measured.
_LARGE, _SECONDS = (1000, 4000, 8000), 30.0
#: Ranks that connect on this host, and the most that may take, in seconds.
_MANY, _CONNECTED = 256, 60.0
#: A prefix as long as that of a job, whose length the store has to read with each key.
_PREFIX = f"{'0' * 32}/heartbeats"
#: The most of a core that rank 0 may use.
_CPU = 0.03
_WAIT = timedelta(seconds=120)


def _fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked process."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


class _Pipe:
    """A pipe on which several processes write lines."""

    def __init__(self) -> None:
        read, self._write = os.pipe()
        self._lines = os.fdopen(read)

    def write(self, value: object) -> None:
        os.write(self._write, f"{json.dumps(value)}\n".encode())

    def read(self) -> object:
        return json.loads(self._lines.readline())


def _free_port() -> int:
    store = torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    return int(store.port)


# ---------------------------------------------------------------------------- how fast


class _FirstRecord(logging.Handler):
    """Writes when this rank first named a lost rank."""

    def __init__(self, pipe: _Pipe) -> None:
        super().__init__()
        self._pipe: _Pipe | None = pipe

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - logging's interface
        if self._pipe is not None:
            self._pipe.write(time.monotonic())
        self._pipe = None


def _seconds_until_named(lose: Callable[[], object]) -> float:
    """Start a job, have its last rank call `lose`; return the seconds until the last other rank named it."""
    port, pipe = _free_port(), _Pipe()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(WORLD_SIZE=str(_RANKS), DS_ACCELERATOR="cpu")
    lost = _RANKS - 1

    def rank(number: int) -> None:
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
        if number != lost:
            logging.getLogger("accel_train").addHandler(_FirstRecord(pipe))
        with init_process_group(timeout=_WAIT, silence=_SILENCE):
            torch.distributed.barrier()
            time.sleep(1.5)
            if number == lost:
                pipe.write(time.monotonic())
                lose()
            time.sleep(60)

    children = [_fork(lambda number=number: rank(number)) for number in range(_RANKS)]
    times = [pipe.read() for _ in range(_RANKS)]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return max(times) - min(times)


def _raise() -> None:
    raise ValueError("no such file")


def named_rows() -> list[Row]:
    rows = []
    ways: dict[str, tuple[Callable[[], object], float]] = {
        "is killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), 2 * _SILENCE),
        "is stopped": (lambda: os.kill(os.getpid(), signal.SIGSTOP), 2 * _SILENCE),
        "raises": (_raise, _SILENCE),
    }
    for what, (lose, most) in ways.items():
        seconds = [_seconds_until_named(lose) for _ in range(_RUNS)]
        middle = statistics.median(seconds)
        name = f"{_RANKS} ranks, silence {_SILENCE:g} s: a rank {what}; time until the last rank names it"
        spread = (min(seconds), max(seconds))
        rows.append(Row(name, "at most", middle, most, max(seconds), most, "s", spread))
    return rows


# ---------------------------------------------------------------------------- what it costs


def _hosts(ranks: int) -> list[str]:
    return [f"host{rank // 8}" for rank in range(ranks)]


def _rank_0(ranks: int, port: _Pipe) -> None:
    server = torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_WAIT
    )
    own = torch.distributed.TCPStore(
        "127.0.0.1", server.port, is_master=False, wait_for_workers=False
    )
    port.write(server.port)
    store = torch.distributed.PrefixStore(_PREFIX, own)
    detector = FailureDetector(0, _hosts(ranks), default_silence(ranks), store)
    detector.start()
    time.sleep(3600)


def _processor_seconds(process: int) -> float:
    """Return the time that all threads of a process have had; Linux counts it in nanoseconds."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class _Others:
    """The connections of all ranks but rank 0."""

    def __init__(self, ranks: int, port: int) -> None:
        connections = {
            rank: torch.distributed.TCPStore(
                "127.0.0.1",
                port,
                is_master=False,
                wait_for_workers=False,
                timeout=_WAIT,
            )
            for rank in range(1, ranks)
        }
        self._stores = {
            rank: torch.distributed.PrefixStore(_PREFIX, connection)
            for rank, connection in connections.items()
        }
        self._values = dict.fromkeys(self._stores, "")

    def beat(self, seconds: float, interval: float) -> None:
        """Send the heartbeats of all ranks, spread over each interval."""
        end = time.monotonic() + seconds
        rounds = 0
        while time.monotonic() < end:
            began = time.monotonic()
            rounds += 1
            for rank, store in self._stores.items():
                due = began + interval * rank / len(self._stores)
                if (left := due - time.monotonic()) > 0.001:
                    time.sleep(left)
                self._beat(rank, store, str(rounds))

    def _beat(self, rank: int, store: torch.distributed.Store, value: str) -> None:
        found = ""
        while found != value:
            found = store.compare_set(str(rank), self._values[rank], value).decode()
            self._values[rank] = found


def cost_row(ranks: int) -> Row:
    pipe = _Pipe()
    zero = _fork(lambda: _rank_0(ranks, pipe))
    others = _Others(ranks, pipe.read())
    silence = default_silence(ranks)
    interval = FailureDetector(0, _hosts(ranks), silence, None).interval
    others.beat(2 * interval, interval)
    before, began = _processor_seconds(zero), time.monotonic()
    others.beat(_SECONDS, interval)
    used = (_processor_seconds(zero) - before) / (time.monotonic() - began)
    os.kill(zero, signal.SIGKILL)
    os.waitpid(zero, 0)
    name = f"{ranks} ranks, a heartbeat every {interval:g} s: CPU load of rank 0, including the store"
    return Row(name, "each second", used, 1.0, used, _CPU)


# ---------------------------------------------------------------------------- many processes


def many_row() -> Row:
    """Start ranks on this host, up to their agreement and first heartbeats, and end them together."""
    port, pipe = _free_port(), _Pipe()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def rank(number: int) -> None:
        os.environ.update(RANK=str(number), WORLD_SIZE=str(_MANY))
        me = Rank(number, _MANY, number, "this")
        meeting = rendezvous(me, None, None, _WAIT)
        record = Record(number, "this", backend="cpu")
        agreed = agree(meeting.store, record, _MANY, _WAIT.total_seconds())
        store = torch.distributed.TCPStore(
            "127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=_WAIT
        )
        own = torch.distributed.PrefixStore(agreed.name, store)
        silence = default_silence(_MANY)
        detector = FailureDetector(number, agreed.hosts, silence, own)
        detector.start()
        pipe.write("connected")
        time.sleep(2 * silence)
        detector.wait_for_all(_WAIT.total_seconds())
        pipe.write("complete")
        detector.release_store()

    began = time.monotonic()
    children = [_fork(lambda number=number: rank(number)) for number in range(_MANY)]
    for _ in children:
        assert pipe.read() == "connected"
    seconds = time.monotonic() - began
    for _ in children:
        assert pipe.read() == "complete"
    for child in children:
        os.waitpid(child, 0)
    name = f"{_MANY} processes on one host: time until all have connected and started"
    return Row(name, "at most", seconds, _CONNECTED, seconds, _CONNECTED, "s")


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = [*named_rows(), many_row(), *map(cost_row, _LARGE)]
    sys.exit(show("heartbeats", "Heartbeats of a job's ranks", rows))
