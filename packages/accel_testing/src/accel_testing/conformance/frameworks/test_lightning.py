"""Lightning's Trainer on the backend, through `accel_train.lightning`."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.frameworks.starting import (
    run_in_one_process,
    run_in_ranks,
)
from accel_testing.conformance.launching import LaunchResult, require_part_passed

__all__ = ["TestLightning"]


class TestLightning(BackendTestBase):
    """One process on one device, and DistributedDataParallel in two."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_lightning(cls, backend_name: str) -> LaunchResult:
        """The result of each part for one process: one start for all of them."""
        return run_in_one_process(
            "lightning",
            backend_name,
            "fit",
            "fit_resumes",
            "fit_in_bfloat16",
            "fit_in_float16",
        )

    def test_fit(self, with_lightning: LaunchResult) -> None:
        """`Trainer.fit` trains on the device as plain torch on the CPU."""
        require_part_passed(with_lightning, "fit")

    def test_fit_resumes(self, with_lightning: LaunchResult) -> None:
        """A checkpoint of the Trainer's loads to the bit, and the training goes on as if it had not ended."""
        require_part_passed(with_lightning, "fit_resumes")

    def test_fit_in_bfloat16(self, with_lightning: LaunchResult) -> None:
        """`precision="bf16-mixed"` trains, and computes products in bfloat16, if it is claimed."""
        require_part_passed(with_lightning, "fit_in_bfloat16")

    def test_fit_in_float16(self, with_lightning: LaunchResult) -> None:
        """`precision="16-mixed"` trains, and computes products in float16, if it is claimed."""
        require_part_passed(with_lightning, "fit_in_float16")

    def test_fit_in_ranks(self, backend_name: str, accelerator: Accelerator) -> None:
        """Two ranks, each with half of the batch and a device, train as one process with all of it."""
        require_part_passed(
            run_in_ranks("lightning", backend_name, accelerator, "fit_in_ranks"),
            "fit_in_ranks",
        )
