"""Checks of DeepSpeed on the backend, through `accel_train.deepspeed`."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.frameworks.starting import run_on_every_device
from accel_testing.conformance.launching import LaunchResult, require_part_passed

__all__ = ["TestDeepSpeed"]


class TestDeepSpeed(BackendTestBase):
    """ZeRO's stages train correctly, in two ranks if two devices are available."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_deepspeed(
        cls, backend_name: str, accelerator: Accelerator
    ) -> LaunchResult:
        """Return the results of all parts, for which the ranks are started once."""
        return run_on_every_device("deepspeed", backend_name, accelerator)

    def test_activates(self, with_deepspeed: LaunchResult) -> None:
        """After `activate()`, DeepSpeed's `get_accelerator()` is the backend's, and the ranks communicate."""
        require_part_passed(with_deepspeed, "activates")

    def test_zero_1(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1, which partitions optimizer states, gives the result of plain torch on the CPU."""
        require_part_passed(with_deepspeed, "zero_1")

    def test_zero_1_resumes(self, with_deepspeed: LaunchResult) -> None:
        """A checkpoint of ZeRO 1 loads bit-identically, and the training continues unchanged."""
        require_part_passed(with_deepspeed, "zero_1_resumes")

    def test_zero_in_bfloat16(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1 trains in bfloat16 if the device claims it: DeepSpeed relies on `is_bf16_supported()`."""
        require_part_passed(with_deepspeed, "zero_in_bfloat16")

    def test_zero_in_float16(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1 trains in float16, with a scaled loss, if the device claims float16."""
        require_part_passed(with_deepspeed, "zero_in_float16")

    def test_zero_2_offloaded(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 2 with the optimizer on the host, through pinned memory, gives the same result."""
        require_part_passed(with_deepspeed, "zero_2_offloaded")

    def test_zero_3(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 3, which gathers and frees parameters on streams, gives the result of torch on the CPU."""
        require_part_passed(with_deepspeed, "zero_3")

    def test_zero_3_resumes(self, with_deepspeed: LaunchResult) -> None:
        """A partitioned checkpoint of ZeRO 3 loads bit-identically, and the training continues unchanged."""
        require_part_passed(with_deepspeed, "zero_3_resumes")

    def test_fused_adam(self, with_deepspeed: LaunchResult) -> None:
        """DeepSpeed's `AdamW` uses `FusedAdam` from the backend's operators or from accel_core's."""
        require_part_passed(with_deepspeed, "fused_adam")
