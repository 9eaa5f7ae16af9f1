"""Checks of Transformers' Trainer on the backend, through `accel_train.transformers`."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.frameworks.starting import (
    run_in_one_process,
    run_in_ranks,
)
from accel_testing.conformance.launching import LaunchResult, require_part_passed

__all__ = ["TestTransformers"]


class TestTransformers(BackendTestBase):
    """Training works in one process on one device, and with DistributedDataParallel in two ranks."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_transformers(cls, backend_name: str) -> LaunchResult:
        """Return the results of all parts in one process, which is started once."""
        parts = ("train", "train_resumes", "train_in_bfloat16", "train_in_float16")
        return run_in_one_process("transformers", backend_name, *parts)

    def test_train(self, with_transformers: LaunchResult) -> None:
        """`Trainer.train` on the device gives the result of plain torch on the CPU."""
        require_part_passed(with_transformers, "train")

    def test_train_resumes(self, with_transformers: LaunchResult) -> None:
        """A checkpoint of the Trainer loads bit-identically, and the training continues unchanged."""
        require_part_passed(with_transformers, "train_resumes")

    def test_train_in_bfloat16(self, with_transformers: LaunchResult) -> None:
        """`bf16=True` computes products in bfloat16 if the device claims the type."""
        require_part_passed(with_transformers, "train_in_bfloat16")

    def test_train_in_float16(self, with_transformers: LaunchResult) -> None:
        """`fp16=True` trains if the device claims float16 and Accelerate lists the device."""
        require_part_passed(with_transformers, "train_in_float16")

    def test_train_in_ranks(self, backend_name: str, accelerator: Accelerator) -> None:
        """Two ranks, each with a device and half of the batch, train like one process with all of it."""
        require_part_passed(
            run_in_ranks("transformers", backend_name, accelerator, "train_in_ranks"),
            "train_in_ranks",
        )
