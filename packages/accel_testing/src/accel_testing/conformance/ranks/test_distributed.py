"""Two ranks over the backend's own communication."""

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


class TestDistributed(BackendTestBase):
    """Requirements of data-parallel training, with two ranks on this host."""

    @pytest.fixture(scope="class")
    @classmethod
    def together(cls, backend_name: str, accelerator: Accelerator) -> LaunchResult:
        """Each part's results, a line a rank: one start of the ranks for all of them."""
        _require_communication(accelerator)
        return launch(_PROGRAM, "all", backend_name, ranks=MOST_RANKS, seconds=_SECONDS)

    def test_reductions(self, together: LaunchResult) -> None:
        """`all_reduce` and `reduce` add, and find the largest and smallest, in every claimed data type."""
        require_part_passed(together, "reductions")

    def test_exchanges(self, together: LaunchResult) -> None:
        """Gathering, scattering, broadcasting, all-to-all, objects and barriers deliver what was sent."""
        require_part_passed(together, "exchanges")

    def test_messages(self, together: LaunchResult) -> None:
        """`send` and `recv` bring a tensor from one rank to another, as pipelines do."""
        require_part_passed(together, "messages")

    def test_data_parallel(self, together: LaunchResult) -> None:
        """DistributedDataParallel's gradients are those of the whole batch on the processor."""
        require_part_passed(together, "data_parallel")

    def test_fully_sharded(self, together: LaunchResult) -> None:
        """FSDP2's (`fully_shard`) gradients are those of the whole batch on the processor."""
        require_part_passed(together, "fully_sharded")

    def test_checkpoints(self, together: LaunchResult) -> None:
        """A distributed checkpoint loads with the same values."""
        require_part_passed(together, "checkpoints")

    def test_lost_rank(self, backend_name: str, accelerator: Accelerator) -> None:
        """If a rank is lost, the others get an error within the timeout: they do not wait for ever."""
        _require_communication(accelerator)
        told, codes, _ = launch(
            _PROGRAM, "lost_rank", backend_name, ranks=MOST_RANKS, seconds=_SECONDS
        )
        if 13 not in codes:
            raise BrokenPromise(f"the rank that was to be lost ended with {codes[-1]}")
        problems = [line["problem"] for line in told.get("lost_rank", [])]
        aborted = [
            code for code in codes if code not in (0, 13)
        ]  # a watchdog may end the process
        require(
            problems == [""] or aborted,
            f"the rank that was left over: {problems or 'hung'}",
        )


def _require_communication(accelerator: Accelerator) -> None:
    import torch

    if not torch.distributed.is_available():
        skip_unsupported("this torch has no torch.distributed")
    if max_ranks(accelerator) < MOST_RANKS:
        name = accelerator.communication_backend_name()
        skip_unsupported(
            f"{accelerator.device_count()} device for {MOST_RANKS} ranks, over {name}"
        )
