"""Checks of each operator in torch's test database, with the samples of torch's tests."""

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

#: Operators that return the index of any of several equal numbers; `reductions.some_of_equals` checks them.
_RETURN_INDICES = ("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")
#: An operator that may round to a different integer.
_ROUND_DIFFERENTLY = ("linspace",)
#: With `max_norm`, torch's CUDA kernel (2.11, an H200) is incorrect for a strided table.
_WRONG_IF_STRIDED = ("nn.functional.embedding_bag",)


class TestSamples(BackendTestBase):
    """Each operator of torch that the device supports must give the CPU's results."""

    def test_floats(self, accelerator: Accelerator) -> None:
        """Each operator in torch's test database gives the CPU's results for torch's float32 samples."""
        assert_samples_match_cpu(accelerator, forward, torch.float32, most=16)

    def test_whole_numbers(self, accelerator: Accelerator) -> None:
        """Each operator in torch's test database gives the CPU's results for int64 and bool samples."""
        assert_samples_match_cpu(
            accelerator,
            forward,
            torch.int64,
            torch.bool,
            most=8,
            without=(*_RETURN_INDICES, *_ROUND_DIFFERENTLY),
        )

    def test_complex_numbers(self, accelerator: Accelerator) -> None:
        """Each operator in torch's test database gives the CPU's results for complex64 samples."""
        try:
            torch.ones(2, dtype=torch.complex64, device=accelerator.device(0)).mul(
                1j
            ).cpu()
        except Exception:
            skip_unsupported("the device does not support complex numbers")
        assert_samples_match_cpu(accelerator, forward, torch.complex64, most=6)

    def test_strided(self, accelerator: Accelerator) -> None:
        """Operators in torch's test database support strided tensors, and negative dimensions."""
        assert_samples_match_cpu(
            accelerator,
            forward,
            torch.float32,
            most=6,
            strided=True,
            without=_WRONG_IF_STRIDED,
        )

    def test_gradients_of_each(self, accelerator: Accelerator) -> None:
        """The gradient of each operator in torch's test database agrees with the CPU's."""
        assert_samples_match_cpu(
            accelerator, gradients, torch.float32, most=6, backward=True
        )
        assert_samples_match_cpu(
            accelerator, gradients_in_place, torch.float32, most=3, backward=True
        )

    def test_written(self, accelerator: Accelerator) -> None:
        """In place and into `out`, operators in torch's test database write only their result."""
        for call in (written, written_into):
            for strided in (False, True):
                assert_samples_match_cpu(
                    accelerator, call, torch.float32, most=4, strided=strided
                )

    def test_several_at_once(self, accelerator: Accelerator) -> None:
        """Operators on lists of tensors, which optimizers use, give the CPU's results."""
        assert_samples_match_cpu(
            accelerator, several, torch.float32, most=12, foreach=True
        )
