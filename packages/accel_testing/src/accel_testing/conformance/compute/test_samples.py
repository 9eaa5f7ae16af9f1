"""Each operator of torch's own database, with the samples of torch's own tests."""

from __future__ import annotations

import torch

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed
from accel_testing.conformance.compute.samples import (
    forward,
    gradients,
    gradients_in_place,
    hold_samples,
    several,
    written,
    written_into,
)
from accel_testing.conformance.subject import Subject

__all__ = ["TestSamples"]

#: Give places, which among equal numbers are any: `reductions.some_of_equals` looks at these.
_PLACES = ("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")
#: Rounds to another whole number.
_ROUNDS = ("linspace",)
#: With `max_norm` torch's CUDA kernel (2.11, an H200) does not find its way in a strided table.
_STRIDED = ("nn.functional.embedding_bag",)


class TestSamples(Subject):
    """Each of torch's operators that the device has gives the same as on the processor."""

    def test_floats(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the processor's result for torch's samples of float32."""
        hold_samples(accelerator, forward, torch.float32, most=16)

    def test_whole_numbers(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the processor's result for samples of int64 and bool."""
        hold_samples(
            accelerator,
            forward,
            torch.int64,
            torch.bool,
            most=8,
            without=(*_PLACES, *_ROUNDS),
        )

    def test_complex_numbers(self, accelerator: Accelerator) -> None:
        """Each operator of torch's database gives the processor's result for samples of complex64."""
        try:
            torch.ones(2, dtype=torch.complex64, device=accelerator.device(0)).mul(
                1j
            ).cpu()
        except Exception:
            not_claimed("the device has no complex numbers")
        hold_samples(accelerator, forward, torch.complex64, most=6)

    def test_strided(self, accelerator: Accelerator) -> None:
        """Operators of torch's database read strided tensors, and count dimensions from the end."""
        hold_samples(
            accelerator, forward, torch.float32, most=6, strided=True, without=_STRIDED
        )

    def test_gradients_of_each(self, accelerator: Accelerator) -> None:
        """The gradient of each operator of torch's database is the processor's."""
        hold_samples(accelerator, gradients, torch.float32, most=6, backward=True)
        hold_samples(
            accelerator, gradients_in_place, torch.float32, most=3, backward=True
        )

    def test_written(self, accelerator: Accelerator) -> None:
        """In place and into `out`, operators of torch's database write what they should and nothing else."""
        for turn in (written, written_into):
            for strided in (False, True):
                hold_samples(accelerator, turn, torch.float32, most=4, strided=strided)

    def test_several_at_once(self, accelerator: Accelerator) -> None:
        """Operators of many tensors at once, which optimizers use, give what they give on the processor."""
        hold_samples(accelerator, several, torch.float32, most=12, foreach=True)
