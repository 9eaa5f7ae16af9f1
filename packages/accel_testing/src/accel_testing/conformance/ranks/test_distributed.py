"""Checks with two ranks, which use the backend's communication."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import BrokenPromise, require, skip_unsupported
from accel_testing.conformance.launching import (
    MOST_RANKS,
    LaunchResult,
    launch,
    max_ranks,
    require_part_passed,
)

__all__ = ["TestDistributed"]

_PROGRAM = "accel_testing.conformance.ranks.program"
_SECONDS = 150.0
#: The exit status of the rank that the check ends.
_LOST_STATUS = 13


class TestDistributed(BackendTestBase):
    """Requirements of data-parallel training, with two ranks on this host."""

    @pytest.fixture(scope="class")
    @classmethod
    def all_parts(cls, backend_name: str, accelerator: Accelerator) -> LaunchResult:
        """Return the results of all parts, for which the ranks are started once."""
        _require_communication(accelerator)
        return launch(_PROGRAM, "all", backend_name, ranks=MOST_RANKS, seconds=_SECONDS)

    def test_reductions(self, all_parts: LaunchResult) -> None:
        """`all_reduce` and `reduce` compute sums, maxima and minima in every claimed data type."""
        require_part_passed(all_parts, "reductions")

    def test_exchanges(self, all_parts: LaunchResult) -> None:
        """Gather, scatter, broadcast, all-to-all, object collectives and barriers deliver the sent data."""
        require_part_passed(all_parts, "exchanges")

    def test_messages(self, all_parts: LaunchResult) -> None:
        """`send` and `recv` transfer a tensor from one rank to another, as pipeline parallelism does."""
        require_part_passed(all_parts, "messages")

    def test_data_parallel(self, all_parts: LaunchResult) -> None:
        """DistributedDataParallel gives the gradients of the whole batch on the CPU."""
        require_part_passed(all_parts, "data_parallel")

    def test_fully_sharded(self, all_parts: LaunchResult) -> None:
        """FSDP2 (`fully_shard`) gives the gradients of the whole batch on the CPU."""
        require_part_passed(all_parts, "fully_sharded")

    def test_checkpoints(self, all_parts: LaunchResult) -> None:
        """A distributed checkpoint loads with the same values."""
        require_part_passed(all_parts, "checkpoints")

    def test_lost_rank(self, backend_name: str, accelerator: Accelerator) -> None:
        """If a rank ends, the other ranks raise an error within the timeout and do not wait forever."""
        _require_communication(accelerator)
        reports, statuses, _ = launch(
            _PROGRAM, "lost_rank", backend_name, ranks=MOST_RANKS, seconds=_SECONDS
        )
        if _LOST_STATUS not in statuses:
            raise BrokenPromise(
                f"the rank that the check ends has the exit status {statuses[-1]}"
            )
        problems = [report["problem"] for report in reports.get("lost_rank", [])]
        # A watchdog may also end a process.
        aborted = [status for status in statuses if status not in (0, _LOST_STATUS)]
        require(
            problems == [""] or aborted,
            f"the remaining rank: {problems or 'hung'}",
        )


def _require_communication(accelerator: Accelerator) -> None:
    """Skip the check unless two ranks can run and communicate."""
    import torch

    if not torch.distributed.is_available():
        skip_unsupported("the installed torch does not have torch.distributed")
    if max_ranks(accelerator) < MOST_RANKS:
        name = accelerator.communication_backend_name()
        skip_unsupported(
            f"{accelerator.device_count()} device for {MOST_RANKS} ranks, over {name}"
        )
