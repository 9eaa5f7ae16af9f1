"""DeepSpeed on the backend, through `accel_train.deepspeed`."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.frameworks.starting import run_on_every_device
from accel_testing.conformance.launching import LaunchResult, require_part_passed

__all__ = ["TestDeepSpeed"]


class TestDeepSpeed(BackendTestBase):
    """ZeRO's stages, in two ranks where there are devices for them."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_deepspeed(
        cls, backend_name: str, accelerator: Accelerator
    ) -> LaunchResult:
        """Each part's result: one start of the ranks for all of them."""
        return run_on_every_device("deepspeed", backend_name, accelerator)

    def test_activates(self, with_deepspeed: LaunchResult) -> None:
        """After `activate()` DeepSpeed's `get_accelerator()` is the backend's, and its ranks meet."""
        require_part_passed(with_deepspeed, "activates")

    def test_zero_1(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1 trains on the device as plain torch on the CPU: optimizer states are partitioned."""
        require_part_passed(with_deepspeed, "zero_1")

    def test_zero_1_resumes(self, with_deepspeed: LaunchResult) -> None:
        """A checkpoint of ZeRO 1 loads to the bit, and the training goes on as if it had not ended."""
        require_part_passed(with_deepspeed, "zero_1_resumes")

    def test_zero_in_bfloat16(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1 trains in bfloat16 if it is claimed: DeepSpeed believes `is_bf16_supported()`."""
        require_part_passed(with_deepspeed, "zero_in_bfloat16")

    def test_zero_in_float16(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 1 trains in float16, with a scaled loss, if it is claimed."""
        require_part_passed(with_deepspeed, "zero_in_float16")

    def test_zero_2_offloaded(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 2 with the optimizer on the host trains the same, by way of pinned memory."""
        require_part_passed(with_deepspeed, "zero_2_offloaded")

    def test_zero_3(self, with_deepspeed: LaunchResult) -> None:
        """ZeRO 3 trains as plain torch on the CPU: parameters are gathered and let go on streams."""
        require_part_passed(with_deepspeed, "zero_3")

    def test_zero_3_resumes(self, with_deepspeed: LaunchResult) -> None:
        """A checkpoint of ZeRO 3, of which each rank has a part, loads to the bit and goes on."""
        require_part_passed(with_deepspeed, "zero_3_resumes")

    def test_fused_adam(self, with_deepspeed: LaunchResult) -> None:
        """DeepSpeed's `AdamW` is `FusedAdam`, of the backend's operators or of accel_core's."""
        require_part_passed(with_deepspeed, "fused_adam")
