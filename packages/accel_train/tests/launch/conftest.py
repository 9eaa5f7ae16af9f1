"""Ranks as real processes, and backends that are the CPU under another name."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from subprocess import PIPE

import pytest
from accel_tests import layouts, plugins
from accel_tests.children import Ended, as_rank, clean_environment, finish, start
from accel_tests.ports import free_port

#: One process for all tests, which imports torch once: it forks the ranks that a line of its stdin asks for,
#: and writes their numbers, and how they ended. A rank has a session, an environment and output of its own.
FORKS = """
import json, os, sys, time
from datetime import timedelta
import torch
from accel_core import RankLostError, RankMismatchError
from accel_train import init_process_group
seconds = lambda n: timedelta(seconds=n)
for line in sys.stdin:
    asked, pids = json.loads(line), []
    for environ, out, err in asked["ranks"]:
        if not (pid := os.fork()):
            break
        pids.append(pid)
    else:
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
        continue
    os.setsid()
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    break
else:
    os._exit(0)
exec(compile(asked["code"], "<rank>", "exec"))
"""


class Ranks:
    """Starts ranks that meet on a port of this host, and waits for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids: list[int] = []
        self.process = start(["-W", "error", "-c", FORKS], clean_environment(OMP_NUM_THREADS="1"), stdin=PIPE)

    def __call__(
        self,
        code: str,
        count: int = 2,
        each: Sequence[Mapping[str, str]] = (),
        timeout: float = 90,
        **variables: str,
    ) -> list[Ended]:
        """Run `count` ranks of `code` to their end, of which `each` gives the variables of some; by rank."""
        port, asked = free_port(), []
        for rank in range(count):
            own = each[rank] if rank < len(each) else {}
            place = as_rank(rank, count, port)
            environ = clean_environment(**{"DS_ACCELERATOR": "cpu", **place, **variables, **own})
            kept = {name: value for name, value in environ.items() if value != "<unset>"}
            said = [self.folder / f"{port}-{rank}.{name}" for name in ("out", "err")]
            asked.append([kept, *map(str, said)])
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"code": code, "ranks": asked}) + "\n")
        self.process.stdin.flush()
        self.pids = self._line(60)
        statuses = self._line(timeout)
        self.kill()
        return [
            Ended(status, *(Path(path).read_text("utf-8", "replace") for path in paths))
            for status, (_, *paths) in zip(statuses, asked, strict=True)
        ]

    def _line(self, timeout: float) -> list[int]:
        """Read a line of numbers; ranks that are too slow are killed, which the statuses tell."""
        assert self.process.stdout is not None
        if not select([self.process.stdout], [], [], timeout)[0]:
            self.kill()
        numbers: list[int] = json.loads(self.process.stdout.readline())
        return numbers

    def kill(self) -> None:
        """End the ranks, and what they have started."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.pids = []


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """The process that has imported torch."""
    pytest.importorskip("torch")
    if sys.platform == "win32":
        pytest.skip("ranks are forked")
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    finish(ranks.process, 60)


@pytest.fixture
def ranks(forks: Ranks) -> Iterator[Ranks]:
    """`ranks(code, count, each, **variables)` runs ranks to their end."""
    yield forks
    forks.kill()


@pytest.fixture
def cpu_backend(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Install a backend that is the CPU under another name; gives the variables of a rank that has it."""

    def install(name: str, version: str = "1.0", folder: str = "site", **fields: object) -> dict[str, str]:
        site = tmp_path / folder
        site.mkdir(exist_ok=True)
        declared = plugins.arguments(
            name, 950, accelerator="accel_core.accelerators.cpu:CPUAccelerator",
            **{"device_type": "cpu", "communication_backend": "gloo", **fields},
        )  # fmt: skip
        module = f"accel_{name}_plugin"
        layouts.dist_info(
            site,
            f"accel-{name}",
            version,
            {layouts.GROUP: {name: module}},
            {module: plugins.declaring(declared)},
        )
        return {"PYTHONPATH": str(site), "DS_ACCELERATOR": name}

    return install
