"""Ranks as real processes, and backends that are the CPU under another name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from accel_testing import layouts, plugins
from accel_testing.children import Ended, as_rank, clean_environment, finish, kill, start
from accel_testing.ports import free_port

#: What every rank's program begins with.
HEAD = """
import os, sys, time, json
from datetime import timedelta
import torch
from accel_core import RankLostError, RankMismatchError
from accel_core.distributed import init_process_group
seconds = lambda n: timedelta(seconds=n)
"""


class Ranks:
    """Starts ranks that meet on a port of this host, and waits for them."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, code: str, count: int = 2, each: Sequence[Mapping[str, str]] = (), **variables: str
    ) -> None:
        """Start `count` ranks of `code`, of which `each` gives the variables of some."""
        port = free_port()
        for rank in range(count):
            own = each[rank] if rank < len(each) else {}
            place = as_rank(rank, count, port)
            environ = clean_environment(**{"DS_ACCELERATOR": "cpu", **place, **variables, **own})
            kept = {name: value for name, value in environ.items() if value != "<unset>"}
            self.processes.append(start(["-W", "error", "-c", HEAD + code], kept))

    def wait(self, timeout: float = 90) -> list[Ended]:
        """How they ended, by rank."""
        end = time.monotonic() + timeout
        return [finish(each, max(1, end - time.monotonic()), check=False) for each in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                kill(process)


@pytest.fixture
def ranks():
    """`ranks(code, count, each, **variables)` runs ranks to their end."""
    pytest.importorskip("torch")
    if sys.platform == "win32":
        pytest.skip("ranks are killed as POSIX process groups")
    started = Ranks()

    def run(*arguments, timeout: float = 90, **variables) -> list[Ended]:
        started.start(*arguments, **variables)
        return started.wait(timeout)

    run.started = started  # type: ignore[attr-defined]
    yield run
    started.kill()
    for process in started.processes:
        process.wait()


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
