"""Checks of each operator of torch's own database, with the samples of torch's own tests."""

from __future__ import annotations

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import skip_unsupported
from accel_testing.conformance.compute.samples import (
    assert_samples_match_cpu,
    forward,
    gradients,
    gradients_in_place,
    several,
    written,
    written_into,
)

__all__ = ["TestSamples"]

#: Return the index of any of several equal numbers; `reductions.some_of_equals` checks these.
_RETURN_INDICES = ("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")
#: Rounds to another integer.
_ROUND_DIFFERENTLY = ("linspace",)
#: With `max_norm` torch's CUDA kernel (2.11, an H200) is wrong for a strided table.
_WRONG_IF_STRIDED = ("nn.functional.embedding_bag",)


class TestSamples(BackendTestBase):
    """Each of torch's operators that the device has must give the same results as on the CPU."""

    def test_floats(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the CPU's result for torch's samples of float32."""
        assert_samples_match_cpu(accelerator, forward, torch.float32, most=16)

    def test_whole_numbers(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the CPU's result for samples of int64 and bool."""
        assert_samples_match_cpu(
            accelerator,
            forward,
            torch.int64,
            torch.bool,
            most=8,
            without=(*_RETURN_INDICES, *_ROUND_DIFFERENTLY),
        )

    def test_complex_numbers(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the CPU's result for samples of complex64."""
        try:
            torch.ones(2, dtype=torch.complex64, device=accelerator.device(0)).mul(
                1j
            ).cpu()
        except Exception:
            skip_unsupported("the device has no complex numbers")
        assert_samples_match_cpu(accelerator, forward, torch.complex64, most=6)

    def test_strided(self, accelerator: Accelerator) -> None:
        """Operators of torch's database read strided tensors, and count dimensions from the end."""
        assert_samples_match_cpu(
            accelerator,
            forward,
            torch.float32,
            most=6,
            strided=True,
            without=_WRONG_IF_STRIDED,
        )

    def test_gradients_of_each(self, accelerator: Accelerator) -> None:
        """The gradient of each operator of torch's database is the CPU's."""
        assert_samples_match_cpu(
            accelerator, gradients, torch.float32, most=6, backward=True
        )
        assert_samples_match_cpu(
            accelerator, gradients_in_place, torch.float32, most=3, backward=True
        )

    def test_written(self, accelerator: Accelerator) -> None:
        """In place and into `out`, operators of torch's database write what they should and nothing else."""
        for call in (written, written_into):
            for strided in (False, True):
                assert_samples_match_cpu(
                    accelerator, call, torch.float32, most=4, strided=strided
                )

    def test_several_at_once(self, accelerator: Accelerator) -> None:
        """Operators of many tensors at once, which optimizers use, give what they give on the CPU."""
        assert_samples_match_cpu(
            accelerator, several, torch.float32, most=12, foreach=True
        )
