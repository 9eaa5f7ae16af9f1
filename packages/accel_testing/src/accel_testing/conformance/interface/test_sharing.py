"""An accelerator in threads, in forked processes, in copies and in pickles."""

from __future__ import annotations

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import torch

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.forks import in_fork
from accel_testing.conformance.subject import Subject

__all__ = ["TestSharing"]

_THREADS = 8
_SECONDS = 10.0


class TestSharing(Subject):
    """One object a process, which every thread may use and no other process inherits by accident."""

    def test_copies_are_the_same(self, accelerator: Accelerator) -> None:
        """A copy of an accelerator is the accelerator: configurations that hold one are deep-copied."""
        require(copy.copy(accelerator) is accelerator, "copy.copy made another accelerator")
        require(copy.deepcopy([accelerator])[0] is accelerator, "copy.deepcopy made another accelerator")

    def test_pickles(self, accelerator: Accelerator) -> None:
        """A pickle brings back an accelerator of the same backend: spawned workers get theirs so."""
        again = pickle.loads(pickle.dumps(accelerator))
        require(again.name == accelerator.name, f"the pickle of {accelerator.name} brought {again.name}")
        require(type(again) is type(accelerator), f"the pickle brought a {type(again).__name__}")

    def test_threads_agree(self, accelerator: Accelerator) -> None:
        """Members answer the same in every thread, at the same time."""

        def asked(_: int) -> tuple[object, ...]:
            with accelerator.stream(accelerator.current_stream()):
                total = (torch.ones(64, device=accelerator.device(0)) * 2).sum().item()
            return accelerator.device_count(), accelerator.device_name(0), accelerator.total_memory(0), total

        with ThreadPoolExecutor(_THREADS) as pool:
            answers = set(pool.map(asked, range(_THREADS)))
        require(len(answers) == 1, f"{_THREADS} threads had different answers: {sorted(map(str, answers))}")
        require(next(iter(answers))[3] == 128.0, f"a thread's sum of 64 twos is {next(iter(answers))[3]}")

    def test_fork_after_use(self, accelerator: Accelerator) -> None:
        """A process forked after the device was used can use it, or is told so: it never hangs or dies."""
        if not hasattr(os, "fork"):
            not_claimed("this system has no fork")
        torch.ones(1, device=accelerator.device()).add_(1)
        accelerator.synchronize()
        said, status = in_fork(lambda: str(torch.ones(2, device=accelerator.device()).sum().item()), _SECONDS)
        if status is None:
            require(False, f"a forked process that used the device hung for {_SECONDS:g} s")
        require(status == 0, f"a forked process that used the device ended with status {status}: {said}")
        fits = said == "2.0" or said.startswith(("RuntimeError", "AssertionError"))
        require(fits, f"a forked process that used the device got {said}; the sum, or a RuntimeError")

    def test_fork_can_ask(self, accelerator: Accelerator) -> None:
        """A forked process can ask for names and counts, as DataLoader's workers do."""
        if not hasattr(os, "fork"):
            not_claimed("this system has no fork")
        said, status = in_fork(lambda: f"{accelerator.device_count()} {accelerator.device_name()}", _SECONDS)
        require(status == 0, f"a forked process that asked for names ended with {status}: {said}")
        expected = f"{accelerator.device_count()} {accelerator.device_name()}"
        require(said == expected, f"a forked process was told {said}, and this one {expected}")
