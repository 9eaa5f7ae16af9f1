"""What is torch's own and asks much of a device: compiling, sharding over ranks, loading with workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

#: What the two ranks have after all_to_all, gather, scatter, reductions, a batch, and what has other shapes.
MOVED = [
    [
        [[1.0], [4.0, 5.0]], [[0.0], [1.0]], [[5.0]], [[0.5]], [[1.0], [1.0, 2.0]],
        [[1.0], [[[0.0, 7.0]], [[1.0, 7.0]]], [[0.0], [14.0]]],
    ],
    [
        [[2.0, 3.0], [6.0, 7.0, 8.0]], [[0.0], [0.0]], [[6.0]], [[0.5], [0.5, 4.0]], [[1.0], [1.0, 2.0]],
        [[0.0], [[[0.0, 7.0]], [[1.0, 7.0]]], [[2.0], [14.0]]],
    ],
]  # fmt: skip


def test_compiled_code_runs_on_the_device(simulated: Callable[..., Any]) -> None:
    told = simulated("acme", "simulated_checks.compiling:everything", "acme", timeout=300).answer
    assert told["aot_eager is eager"]
    assert told["inductor differs by"] < 1e-6
    assert told["places"] == ["acme:1"]
    assert told["chosen"] == "inductor"
    assert told["values"] == [1.0, 5.0]
    assert "kernel 1 failed (requested)" in told["failed"]
    assert "a kernel of torch.compile's is not permitted while the stream is capturing" in told["captured"]


def test_what_is_sharded_over_two_ranks_is_as_on_the_cpu(
    simulated: Callable[..., Any], tmp_path: Path
) -> None:
    run = simulated("acme", "simulated_checks.sharded:everything", "acme", str(tmp_path), processes=2)
    for rank, told in enumerate(run.answers):
        assert told.pop("backend") == "acme:accl"
        assert told.pop("device") == f"acme:{rank}"
        assert told.pop("moved")["values"] == MOVED[rank]
        assert told == dict.fromkeys(told, True)


def test_workers_load_page_locked_batches(simulated: Callable[..., Any]) -> None:
    answer = simulated("acme", "simulated_checks.loading:with_workers", "acme").answer
    assert answer == {"pinned": True, "whole": True}
