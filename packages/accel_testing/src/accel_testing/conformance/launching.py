"""Start the ranks of a check, and read their report on each part; `parts` writes it."""

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
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.forks import patient
from accel_testing.conformance.parts import BEGINNING

__all__ = ["MOST_RANKS", "Launch", "kept", "launch", "ranks_of"]

#: Two ranks show what is wrong with several, and most hosts have that many devices.
MOST_RANKS = 2
#: Seconds that the other ranks have to notice that one has failed.
_PATIENCE = 60.0
_PAUSE = 0.05


class Launch(NamedTuple):
    """How the ranks ended, and what they reported."""

    #: By part a line of each rank: `problem`, `unclaimed`, `seconds`.
    lines: dict[str, list[dict[str, Any]]]
    #: Each rank's exit status; `None` for one that had to be ended.
    codes: list[int | None]
    #: The last line that each rank wrote to stderr.
    words: list[str]


def ranks_of(accelerator: Accelerator) -> int:
    """Return how many ranks can be tried: one per device, unless they communicate through the host."""
    import torch

    if not torch.distributed.is_available():
        return 1
    shares = not accelerator.is_accelerator() or accelerator.communication_backend_name() in (
        "gloo", "staged",
    )  # fmt: skip
    return MOST_RANKS if shares else min(MOST_RANKS, accelerator.device_count())


def launch(
    module: str, *arguments: str, ranks: int, seconds: float, **variables: str
) -> Launch:
    """Run the module in `ranks` ranks on this host, and wait for them.

    The module gets a folder, which exists while the ranks run, and `arguments`. The ranks have torchrun's
    variables and `variables`. Ranks that still run after `seconds` are ended.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
        command = [sys.executable, "-m", module, folder, *arguments]
        codes = _run(
            folder,
            command,
            [{**_environment(rank, ranks, port), **variables} for rank in range(ranks)],
            seconds,
        )
        lines: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(Path(folder).glob("*.jsonl")):
            for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                lines.setdefault(line["part"], []).append(line)
        words = [_last_line(Path(folder, f"{rank}.err")) for rank in range(ranks)]
    return Launch(lines, codes, words)


def kept(launch: Launch, part: str) -> None:
    """End the check with the ranks' result for this part: passed, broken, or not claimed."""
    lines = [*launch.lines.get(BEGINNING, []), *launch.lines.get(part, [])]
    problems = {line["problem"] for line in lines} - {""}
    require(not problems, "; ".join(sorted(problems)))
    unclaimed = next((line["unclaimed"] for line in lines if line["unclaimed"]), "")
    if unclaimed:
        not_claimed(unclaimed)
    ranks, ended = len(launch.codes), len(launch.lines.get(part, []))
    require(
        ended == ranks,
        f"{ended} of {ranks} ranks came to the end of it; {_fate(launch)}",
    )


def _fate(launch: Launch) -> str:
    told = []
    for rank, (code, words) in enumerate(zip(launch.codes, launch.words, strict=True)):
        told.append(
            f"rank {rank} {child.ChildReport(returncode=code).ending}"
            + (f": {words}" if words else "")
        )
    return "; ".join(told)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def _run(
    folder: str, command: list[str], environments: list[dict[str, str]], seconds: float
) -> list[int | None]:
    """How each ended; once one has failed the others end soon, or never."""
    with contextlib.ExitStack() as stack:
        processes = []
        for rank, environ in enumerate(environments):
            # A file, as a pipe that nobody reads is full after 64 kB, and frameworks write more.
            log = stack.enter_context(Path(folder, f"{rank}.err").open("wb"))
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            processes.append(process)
        end, failed = time.monotonic() + patient(seconds), False
        while (
            None in (codes := [process.poll() for process in processes])
            and time.monotonic() < end
        ):
            if not failed and any(codes):
                failed, end = True, min(end, time.monotonic() + _PATIENCE)
            time.sleep(_PAUSE)
        return codes


def _end(process: subprocess.Popen[bytes]) -> None:
    processes.end_group(process)
    process.wait()


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip()[:500] if lines else ""
