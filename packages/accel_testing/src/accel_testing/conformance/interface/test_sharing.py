"""Checks of accelerators in threads, forked processes, copies and pickles."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import BrokenPromise, require, skip_unsupported
from accel_testing.conformance.forks import run_in_fork, scale_timeout

__all__ = ["TestSharing"]

#: Members that return the same value in every thread, whatever the thread did before.
_SAME_IN_EVERY_THREAD = (
    "capabilities", "device_count", "device_uuid", "initial_seed", "is_available", "is_initialized",
    "supported_dtypes", "total_memory", "visible_device_ids",
)  # fmt: skip
_MEMORY_MEMBERS = ("max_memory_allocated", "memory_allocated", "memory_reserved")
_THREADS = 8
_SECONDS = 10.0


class TestSharing(BackendTestBase):
    """A process has one accelerator object, which all threads may use."""

    def test_copies_are_the_same(self, accelerator: Accelerator) -> None:
        """A copy of an accelerator is the same object, because configurations may be deep-copied."""
        require(
            copy.copy(accelerator) is accelerator,
            "copy.copy returned a different object",
        )
        require(
            copy.deepcopy([accelerator])[0] is accelerator,
            "copy.deepcopy returned a different object",
        )

    def test_pickles(self, accelerator: Accelerator) -> None:
        """Unpickling gives an accelerator of the same backend, on which spawned workers rely."""
        unpickled = pickle.loads(pickle.dumps(accelerator))
        require(
            unpickled.name == accelerator.name,
            f"after unpickling, {accelerator.name} is {unpickled.name}: __reduce__ is wrong",
        )
        require(
            type(unpickled) is type(accelerator),
            f"after unpickling, the accelerator is a {type(unpickled).__name__}: __reduce__ is wrong",
        )

    def test_threads_agree(self, accelerator: Accelerator) -> None:
        """Members return the same values in several threads at the same time."""

        def query(_: int) -> dict[str, object]:
            with accelerator.stream(accelerator.current_stream()):
                total = (torch.ones(64, device=accelerator.device(0)) * 2).sum().item()
            return {
                "device_count()": accelerator.device_count(),
                "device_name(0)": accelerator.device_name(0),
                "total_memory(0)": accelerator.total_memory(0),
                "(torch.ones(64, device=device(0)) * 2).sum() inside stream(current_stream())": total,
            }

        with ThreadPoolExecutor(_THREADS) as pool:
            answers = list(pool.map(query, range(_THREADS)))
        for name in answers[0]:
            distinct = sorted({str(answer[name]) for answer in answers})
            require(
                len(distinct) == 1,
                f"in {_THREADS} simultaneous threads, {name} returned {' and '.join(distinct)}",
            )
        *_, (name, total) = answers[0].items()
        require(total == 128.0, f"in a thread, {name} returned {total}; expected 128.0")
        accelerator.synchronize()
        names = list(_SAME_IN_EVERY_THREAD)
        if accelerator.is_accelerator():  # the CPU's memory may change at any time
            names += _MEMORY_MEMBERS
        for name in names:
            member = getattr(accelerator, name)
            with ThreadPoolExecutor(1) as new_thread:
                value, value_in_thread = member(), new_thread.submit(member).result()
            require(
                value == value_in_thread,
                f"{name}() returned {value!r}, but in a new thread {value_in_thread!r}",
            )

    def test_threads_can_call_everything(self, accelerator: Accelerator) -> None:
        """A thread that never selected a device, as in loaders and servers, can use every member."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            unsupported = _errors_of(_calls(accelerator))
        deprecations = [
            warning.message
            for warning in caught
            if issubclass(warning.category, (DeprecationWarning, FutureWarning))
        ]
        require(
            not deprecations,
            f"a member issued the warning {deprecations[0] if deprecations else ''}; expected no "
            "deprecation warning of the interface",
        )
        errors: dict[str, str] = {}

        def call_in_thread() -> None:
            errors.update(_errors_of(_calls(accelerator)))

        thread = Thread(target=call_in_thread)
        thread.start()
        thread.join()
        problems = [
            f"{name} raised {error}"
            for name, error in errors.items()
            if name not in unsupported
        ]
        require(not problems, f"in another thread, {'; '.join(problems[:5])}")

    def test_fork_after_use(self, accelerator: Accelerator) -> None:
        """A child forked after the device was used can use the device or gets an error, but does not hang."""
        if not hasattr(os, "fork"):
            skip_unsupported("this system does not support fork")
        torch.ones(1, device=accelerator.device()).add_(1)
        accelerator.synchronize()
        result, status = run_in_fork(
            lambda: str(torch.ones(2, device=accelerator.device()).sum().item()),
            scale_timeout(_SECONDS),
        )
        call = "torch.ones(2, device=device()).sum()"
        description = f"a process forked after the device's first use that calls {call}"
        if status is None:
            raise BrokenPromise(
                f"{description} hung for more than {_SECONDS:g} s; expected 2.0, or a RuntimeError"
            )
        require(
            status == 0,
            f"{description} ended with status {status}: {result}; expected 2.0, or a RuntimeError",
        )
        is_right = result == "2.0" or result.startswith(
            ("RuntimeError", "AssertionError")
        )
        require(
            is_right,
            f"{description} returned {result}; expected 2.0, or a RuntimeError",
        )

    def test_fork_can_ask(self, accelerator: Accelerator) -> None:
        """A forked process can query names and counts, as DataLoader's workers do."""
        if not hasattr(os, "fork"):
            skip_unsupported("this system does not support fork")
        result, status = run_in_fork(
            lambda: f"{accelerator.device_count()} {accelerator.device_name()}",
            scale_timeout(_SECONDS),
        )
        description = "a forked process that calls device_count() and device_name()"
        require(
            status == 0,
            f"{description} ended with {'no end' if status is None else status}: {result}",
        )
        expected = f"{accelerator.device_count()} {accelerator.device_name()}"
        require(
            result == expected, f"{description} returned {result}; expected {expected}"
        )


def _calls(accelerator: Accelerator) -> dict[str, Callable[[], object]]:
    """Return calls of all members without lasting effects, by the member's name."""
    without_arguments = (
        "available_memory", "capabilities", "create_graph", "current_device", "current_device_name",
        "current_stream", "default_stream", "device", "device_count", "device_name",
        "device_properties", "device_uuid", "empty_cache", "empty_host_cache", "export_envs",
        "get_compile_backend", "get_device_capability", "get_rng_state", "get_rng_state_all",
        "grad_scaler",
        "initial_seed", "is_available", "is_current_stream_capturing", "is_initialized",
        "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
        "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
        "operators", "range_pop", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
        "reset_max_memory_cached", "reset_peak_memory_stats", "supported_dtypes", "synchronize",
        "total_memory", "visible_device_ids",
    )  # fmt: skip
    calls: dict[str, Callable[[], object]] = {
        name: getattr(accelerator, name) for name in without_arguments
    }
    host = torch.ones(2)

    def enter(make_context: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            with make_context():
                pass

        return call

    return {
        **calls,
        "autocast": enter(accelerator.autocast),
        "capture_to_graph": enter(lambda: accelerator.capture_to_graph(None)),
        "create_op_builder": lambda: accelerator.create_op_builder("NoSuchBuilder"),
        "default_generator": lambda: accelerator.default_generator(0),
        "device_guard": enter(lambda: accelerator.device_guard(0)),
        "fork_rng": enter(accelerator.fork_rng),
        "get_op_builder": lambda: accelerator.get_op_builder("NoSuchBuilder"),
        "is_pinned": lambda: accelerator.is_pinned(host),
        "lazy_call": lambda: accelerator.lazy_call(bool),
        "manual_seed": lambda: accelerator.manual_seed(1),
        "manual_seed_all": lambda: accelerator.manual_seed_all(1),
        "on_accelerator": lambda: accelerator.on_accelerator(host),
        "pin_empty": lambda: accelerator.pin_empty(1, dtype=torch.float32),
        "pin_empty_like": lambda: accelerator.pin_empty_like(host),
        "pin_memory": lambda: accelerator.unpin_memory(accelerator.pin_memory(host)),
        "range": enter(lambda: accelerator.range("thread")),
        "range_push": lambda: accelerator.range_push("thread"),
        "reset_graph": lambda: accelerator.reset_graph(None),
        "replay_graph": lambda: accelerator.replay_graph(None),
        "instantiate_graph": lambda: accelerator.instantiate_graph(None),
        "enable_graph_debug_mode": lambda: accelerator.enable_graph_debug_mode(None),
        "debug_dump_graph": lambda: accelerator.debug_dump_graph(None, "graph"),
        "set_compile_backend": lambda: accelerator.set_compile_backend(
            accelerator.get_compile_backend()
        ),
        "set_device": lambda: accelerator.set_device(0),
        "set_rng_state": lambda: accelerator.set_rng_state(accelerator.get_rng_state()),
        "set_stream": lambda: accelerator.set_stream(accelerator.current_stream()),
        "set_visible_devices_envs": lambda: accelerator.set_visible_devices_envs(
            {}, [0]
        ),
        "stream": enter(lambda: accelerator.stream(accelerator.current_stream())),
    }


def _errors_of(calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Make each call, and return the errors, by the call's name."""
    errors = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"
    return errors
