"""Checks of Lightning's Trainer on the backend, through `accel_train.lightning`."""

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
    """Training works in one process on one device, and with DistributedDataParallel in two ranks."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_lightning(cls, backend_name: str) -> LaunchResult:
        """Return the results of all parts in one process, which is started once."""
        return run_in_one_process(
            "lightning",
            backend_name,
            "fit",
            "fit_resumes",
            "fit_in_bfloat16",
            "fit_in_float16",
        )

    def test_fit(self, with_lightning: LaunchResult) -> None:
        """`Trainer.fit` on the device gives the result of plain torch on the CPU."""
        require_part_passed(with_lightning, "fit")

    def test_fit_resumes(self, with_lightning: LaunchResult) -> None:
        """A checkpoint of the Trainer loads bit-identically, and the training continues unchanged."""
        require_part_passed(with_lightning, "fit_resumes")

    def test_fit_in_bfloat16(self, with_lightning: LaunchResult) -> None:
        """`precision="bf16-mixed"` computes products in bfloat16 if the device claims the type."""
        require_part_passed(with_lightning, "fit_in_bfloat16")

    def test_fit_in_float16(self, with_lightning: LaunchResult) -> None:
        """`precision="16-mixed"` computes products in float16 if the device claims the type."""
        require_part_passed(with_lightning, "fit_in_float16")

    def test_fit_in_ranks(self, backend_name: str, accelerator: Accelerator) -> None:
        """Two ranks, each with a device and half of the batch, train like one process with all of it."""
        require_part_passed(
            run_in_ranks("lightning", backend_name, accelerator, "fit_in_ranks"),
            "fit_in_ranks",
        )
