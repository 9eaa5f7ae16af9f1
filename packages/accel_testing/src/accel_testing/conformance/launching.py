"""Start the ranks of a distributed check, and read the reports that `parts` writes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from accel_core import Accelerator
from accel_core.sandbox import child, processes
from accel_testing.conformance.claims import require, skip_unsupported
from accel_testing.conformance.forks import scale_timeout
from accel_testing.conformance.parts import BEGINNING

__all__ = ["MOST_RANKS", "LaunchResult", "launch", "max_ranks", "require_part_passed"]

#: The maximum number of ranks. Two are enough to reveal an error, and most hosts have two devices.
MOST_RANKS = 2
#: The number of seconds that the other ranks have to end after one rank has failed.
_SECONDS_AFTER_FAILURE = 60.0
_PAUSE = 0.05


class LaunchResult(NamedTuple):
    """The exit statuses and reports of the ranks of a distributed check."""

    #: For each part, the report of each rank, with the keys `problem`, `unclaimed` and `seconds`.
    reports: dict[str, list[dict[str, Any]]]
    #: The exit status of each rank, or `None` for a rank that was killed.
    exit_statuses: list[int | None]
    #: The last line that each rank wrote to stderr.
    last_lines: list[str]


def max_ranks(accelerator: Accelerator) -> int:
    """Return the maximum number of ranks that a distributed check can use.

    There can be only one rank per device, unless the ranks communicate through the host.
    """
    import torch

    if not torch.distributed.is_available():
        return 1
    can_share_device = not accelerator.is_accelerator() or accelerator.communication_backend_name() in (
        "gloo", "staged",
    )  # fmt: skip
    return (
        MOST_RANKS if can_share_device else min(MOST_RANKS, accelerator.device_count())
    )


def launch(
    module: str, *arguments: str, ranks: int, seconds: float, **variables: str
) -> LaunchResult:
    """Run a module in several ranks on this host, wait for the ranks to end, and return their results.

    The module's arguments are a folder, which exists while the ranks run, followed by `arguments`. Each
    rank's environment contains the variables that torchrun sets, and `variables`. Ranks that are still
    running after `seconds` are killed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
        command = [sys.executable, "-m", module, folder, *arguments]
        environments = [
            {**_environment(rank, ranks, port), **variables} for rank in range(ranks)
        ]
        exit_statuses = _run(folder, command, environments, seconds)
        reports: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(Path(folder).glob("*.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                report = json.loads(line)
                reports.setdefault(report["part"], []).append(report)
        last_lines = [_last_line(Path(folder, f"{rank}.err")) for rank in range(ranks)]
    return LaunchResult(reports, exit_statuses, last_lines)


def require_part_passed(result: LaunchResult, part: str) -> None:
    """Pass, fail or skip the check according to what the ranks report about the part `part`."""
    reports = result.reports.get(BEGINNING, []) + result.reports.get(part, [])
    problems = {report["problem"] for report in reports} - {""}
    require(not problems, "; ".join(sorted(problems)))
    for report in reports:
        if report["unclaimed"]:
            skip_unsupported(report["unclaimed"])
    ranks = len(result.exit_statuses)
    ended = len(result.reports.get(part, []))
    require(
        ended == ranks,
        f"{ended} of {ranks} ranks completed it; {_describe_ends(result)}",
    )


def _describe_ends(result: LaunchResult) -> str:
    """Return a description of how each rank ended, with the last line that it wrote."""
    descriptions = []
    ends = zip(result.exit_statuses, result.last_lines, strict=True)
    for rank, (status, last_line) in enumerate(ends):
        ending = child.ChildReport(returncode=status).ending
        suffix = f": {last_line}" if last_line else ""
        descriptions.append(f"rank {rank} {ending}{suffix}")
    return "; ".join(descriptions)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return this process's environment with the variables that torchrun sets for a rank."""
    return {
        **os.environ,
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def _run(
    folder: str, command: list[str], environments: list[dict[str, str]], seconds: float
) -> list[int | None]:
    """Run the command once in each environment, and return the exit statuses.

    The exit status of a killed process is `None`. Once a process has failed, the others have
    `_SECONDS_AFTER_FAILURE` to end.
    """
    with contextlib.ExitStack() as stack:
        processes = []
        for rank, environ in enumerate(environments):
            # stderr is a file, because an unread pipe is full after 64 kB, and frameworks write more.
            log = stack.enter_context(Path(folder, f"{rank}.err").open("wb"))
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            processes.append(process)
        deadline = time.monotonic() + scale_timeout(seconds)
        has_failed = False
        while True:
            statuses = [process.poll() for process in processes]
            if None not in statuses or time.monotonic() >= deadline:
                return statuses
            if not has_failed and any(statuses):
                has_failed = True
                deadline = min(deadline, time.monotonic() + _SECONDS_AFTER_FAILURE)
            time.sleep(_PAUSE)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all processes that it started, and wait for the process to end."""
    processes.end_group(process)
    process.wait()


def _last_line(file: Path) -> str:
    """Return at most 500 characters of a file's last line, or an empty string if the file is empty."""
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip()[:500] if lines else ""
