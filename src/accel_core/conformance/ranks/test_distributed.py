"""Two ranks over the backend's own communication."""

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
from typing import Any

import pytest

from accel_core.accelerators.interface import Accelerator
from accel_core.conformance.claims import BrokenPromise, not_claimed, require
from accel_core.conformance.subject import Subject

__all__ = ["TestDistributed"]

_RANKS = 2
_SECONDS = 150.0


class TestDistributed(Subject):
    """What data-parallel training relies on, with two ranks on this host."""

    @pytest.fixture(scope="class")
    @classmethod
    def together(cls, backend_name: str, accelerator: Accelerator) -> dict[str, list[dict[str, Any]]]:
        """What each part gave, a line a rank: one start of the ranks for all of them."""
        _require_communication(accelerator)
        lines, _ = _launched(backend_name, "all")
        return lines

    def test_reductions(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """`all_reduce` and `reduce` add, and find the largest and smallest, in every claimed data type."""
        _kept(together, "reductions")

    def test_exchanges(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """Gathering, scattering, broadcasting, all-to-all, objects and barriers bring what was sent."""
        _kept(together, "exchanges")

    def test_messages(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """`send` and `recv` bring a tensor from one rank to another, as pipelines do."""
        _kept(together, "messages")

    def test_data_parallel(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """DistributedDataParallel's gradients are those of the whole batch on the processor."""
        _kept(together, "data_parallel")

    def test_fully_sharded(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """FSDP2's (`fully_shard`) gradients are those of the whole batch on the processor."""
        _kept(together, "fully_sharded")

    def test_checkpoints(self, together: dict[str, list[dict[str, Any]]]) -> None:
        """A distributed checkpoint that is saved is the same when it is loaded."""
        _kept(together, "checkpoints")

    def test_lost_rank(self, backend_name: str, accelerator: Accelerator) -> None:
        """Where a rank is lost the others get an error within the timeout: they do not wait for ever."""
        _require_communication(accelerator)
        lines, codes = _launched(backend_name, "lost_rank")
        if 13 not in codes:
            raise BrokenPromise(f"the rank that was to be lost ended with {codes[-1]}")
        told = [line["problem"] for line in lines.get("lost_rank", [])]
        aborted = [code for code in codes if code not in (0, 13)]  # a watchdog may end the process
        require(told == [""] or aborted, f"the rank that was left over: {told or 'hung'}")


def _require_communication(accelerator: Accelerator) -> None:
    import torch

    if not torch.distributed.is_available():
        not_claimed("this torch has no torch.distributed")
    name = accelerator.communication_backend_name()
    shares = not accelerator.is_accelerator() or name in ("gloo", "staged")
    if accelerator.device_count() < _RANKS and not shares:
        not_claimed(f"{accelerator.device_count()} device for {_RANKS} ranks, over {name}")


def _kept(together: dict[str, list[dict[str, Any]]], part: str) -> None:
    lines = together.get(part, [])
    problems = {line["problem"] for line in lines} - {""}
    require(not problems, "; ".join(sorted(problems)))
    require(len(lines) == _RANKS, f"{len(lines)} of {_RANKS} ranks came to the end of it")


def _launched(backend: str, part: str) -> tuple[dict[str, list[dict[str, Any]]], list[int | None]]:
    """What the ranks wrote, by part, and how each ended; `None` for one that was ended."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
        program = [sys.executable, "-m", "accel_core.conformance.ranks.program", folder, part, backend]
        ranks = [
            subprocess.Popen(
                program, env=_environment(rank, port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
            )
            for rank in range(_RANKS)
        ]  # fmt: skip
        end = time.monotonic() + _SECONDS
        codes = [_code(rank, end) for rank in ranks]
        lines: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(Path(folder).glob("*.jsonl")):
            for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                lines.setdefault(line["part"], []).append(line)
        words = [rank.stderr.read().strip() if rank.stderr else "" for rank in ranks]
    if not lines and part == "all":
        last = next((text.splitlines()[-1] for text in words if text), "nothing was said")
        raise BrokenPromise(f"no rank came to the first collective: {last[:500]}")
    return lines, codes


def _code(rank: subprocess.Popen[str], end: float) -> int | None:
    try:
        return rank.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(rank.pid, 9) if hasattr(os, "killpg") else rank.kill()
        rank.wait()
        return None


def _environment(rank: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(_RANKS),
        "LOCAL_WORLD_SIZE": str(_RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
