"""Transformers' Trainer on the backend, through `accel_train.transformers`."""

from __future__ import annotations

import pytest

from accel_core import Accelerator
from accel_testing.conformance.frameworks.started import alone, together
from accel_testing.conformance.launching import Launch, kept
from accel_testing.conformance.subject import Subject

__all__ = ["TestTransformers"]


class TestTransformers(Subject):
    """One process on one device, and DistributedDataParallel in two."""

    @pytest.fixture(scope="class")
    @classmethod
    def with_transformers(cls, backend_name: str) -> Launch:
        """The result of each part for one process: one start for all of them."""
        parts = ("train", "train_resumes", "train_in_bfloat16", "train_in_float16")
        return alone("transformers", backend_name, *parts)

    def test_train(self, with_transformers: Launch) -> None:
        """`Trainer.train` trains on the device as plain torch on the processor."""
        kept(with_transformers, "train")

    def test_train_resumes(self, with_transformers: Launch) -> None:
        """A checkpoint of the Trainer's loads to the bit, and the training goes on as if it had not ended."""
        kept(with_transformers, "train_resumes")

    def test_train_in_bfloat16(self, with_transformers: Launch) -> None:
        """`bf16=True` trains, and computes products in bfloat16, if it is claimed."""
        kept(with_transformers, "train_in_bfloat16")

    def test_train_in_float16(self, with_transformers: Launch) -> None:
        """`fp16=True` trains if float16 is claimed and Accelerate lists the device."""
        kept(with_transformers, "train_in_float16")

    def test_train_in_ranks(self, backend_name: str, accelerator: Accelerator) -> None:
        """Two ranks, each with half of the batch and a device, train as one process with all of it."""
        kept(
            together("transformers", backend_name, accelerator, "train_in_ranks"),
            "train_in_ranks",
        )
