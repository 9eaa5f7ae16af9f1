"""Checks that context managers restore the previous state, if nested, after errors and in every thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, skip_unsupported

__all__ = ["TestGuards"]

_MEBIBYTE = 1 << 20


class _TestError(Exception):
    """An error that the checks raise inside blocks."""


#: The errors raised in blocks: an error as vendors raise it, a wrong name, a test's error, and Ctrl-C.
_ERRORS = (RuntimeError, KeyError, _TestError, KeyboardInterrupt)


def _require_error_leaves(
    block: AbstractContextManager[Any],
    name: str,
    error: type[BaseException] = _TestError,
) -> None:
    """Raise an error in the block, and require that the error leaves the block."""
    has_left = False
    try:
        with block:
            raise error
    except error:
        has_left = True
    require(
        has_left,
        f"a {error.__name__} raised inside {name} did not leave the block: {name} must not catch errors",
    )


class TestGuards(BackendTestBase):
    """A block must restore the state before the block, and not the state at the process's start."""

    def test_errors_come_out_of_blocks(self, accelerator: Accelerator) -> None:
        """No context manager catches an error raised in its block, after which training would continue."""
        stream = accelerator.current_stream()
        blocks: dict[str, Callable[[], AbstractContextManager[Any]]] = {
            "device_guard(0)": lambda: accelerator.device_guard(0),
            "device_guard(None)": lambda: accelerator.device_guard(None),
            "stream(current_stream())": lambda: accelerator.stream(stream),
            "stream(None)": lambda: accelerator.stream(None),
            "stream(Stream())": lambda: accelerator.stream(accelerator.Stream()),
            "fork_rng()": accelerator.fork_rng,
            "autocast()": accelerator.autocast,
            "range('block')": lambda: accelerator.range("block"),
            "capture_to_graph(None)": lambda: accelerator.capture_to_graph(None),
        }
        for name, block in blocks.items():
            for error in _ERRORS:
                _require_error_leaves(block(), name, error)

    def test_device_guards_nest(self, accelerator: Accelerator) -> None:
        """`device_guard` restores the previously selected device, also in nested blocks."""
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            skip_unsupported("there is one device")
        for before, other in ((0, last), (last, 0)):
            self._require_nested_guards_restore(accelerator, before, other)
            self._require_guard_restores(accelerator, before, other)
            with contextlib.suppress(ValueError):
                accelerator.set_device(4096)
            current = accelerator.current_device()
            require(
                current == other,
                f"a rejected set_device(4096) changed the current device to {current}; expected {other}",
            )

    def _require_nested_guards_restore(
        self, accelerator: Accelerator, before: int, other: int
    ) -> None:
        """Require that a nested guard restores the outer guard's device, even after an error."""
        current = accelerator.current_device
        accelerator.set_device(before)
        guard = accelerator.device_guard(other)
        accelerator.set_device(before)
        with guard:
            require(
                current() == other,
                f"inside device_guard({other}) current_device() returned {current()}",
            )
            with accelerator.device_guard(before):
                pass
            require(
                current() == other,
                f"device_guard({before}) ended inside device_guard({other}): current_device() returned "
                f"{current()}; expected {other}",
            )
            inner = accelerator.device_guard(before)
            _require_error_leaves(inner, f"device_guard({before})")
            require(
                current() == other,
                f"after an error in device_guard({before}) inside device_guard({other}) current_device() "
                f"returned {current()}; expected {other}",
            )
        require(
            current() == before,
            f"set_device({before}), then device_guard({other}) with blocks in it: afterwards "
            f"current_device() returned {current()}; expected {before}",
        )

    def _require_guard_restores(
        self, accelerator: Accelerator, before: int, other: int
    ) -> None:
        """Require that a guard restores the device that was current at its entry; leaves `other` selected."""
        current = accelerator.current_device
        guard = accelerator.device_guard(other)
        _require_error_leaves(guard, f"device_guard({other})")
        require(
            current() == before,
            f"set_device({before}), then an error in device_guard({other}): current_device() returned "
            f"{current()}; expected {before}",
        )
        for guarded, selected in ((before, other), (other, before)):
            with accelerator.device_guard(guarded):
                accelerator.set_device(selected)
            require(
                current() == before,
                f"set_device({before}), then set_device({selected}) inside device_guard({guarded}): "
                f"afterwards current_device() returned {current()}; expected {before}",
            )
        guard = accelerator.device_guard(before)
        accelerator.set_device(other)
        with guard:
            pass
        require(
            current() == other,
            f"device_guard({before}) was made on device {before} and entered on device {other}: "
            f"afterwards current_device() returned {current()}; expected {other}",
        )

    def test_streams_nest(self, accelerator: Accelerator) -> None:
        """`stream(s)` restores the previous stream and device, also in nested blocks."""
        first, second, third = (accelerator.Stream() for _ in range(3))
        if getattr(first, "one_queue", False) or first == second:
            skip_unsupported("the device has only one stream")
        usual = accelerator.current_stream()
        accelerator.set_stream(first)
        try:
            self._require_stream_blocks_restore(accelerator, first, second, third)
        finally:
            accelerator.set_stream(usual)
        last = accelerator.device_count() - 1
        if accelerator.device(last) != accelerator.device(0):
            self._require_stream_stays_current(accelerator, first, last)
            self._require_streams_of_device_restore(accelerator, last)

    def _require_stream_blocks_restore(
        self, accelerator: Accelerator, first: Any, second: Any, third: Any
    ) -> None:
        """Require that nested blocks restore the outer block's stream; `first` is current before them."""
        current = accelerator.current_stream
        with accelerator.stream(second):
            with accelerator.stream(third):
                pass
            require(
                current() == second,
                "stream(b) ended inside stream(a): the current stream is not a",
            )
            _require_error_leaves(accelerator.stream(third), "stream(b)")
            require(
                current() == second,
                "after an error in stream(b) inside stream(a), the current stream is not a",
            )
            with accelerator.stream(None):
                inside = current()
            require(
                inside == second,
                "inside stream(None), inside stream(a), the current stream is not a",
            )
            require(
                current() == second,
                "after stream(None), inside stream(a), the current stream is not a",
            )
        problem = "the current stream is not s, which set_stream(s) had set before"
        require(current() == first, f"after stream(a) with nested blocks, {problem}")
        _require_error_leaves(accelerator.stream(second), "stream(a)")
        require(current() == first, f"after an error in stream(a), {problem}")
        with accelerator.stream(second):
            accelerator.set_stream(third)
        require(
            current() == first, f"after stream(a) with set_stream(b) inside, {problem}"
        )

    def _require_stream_stays_current(
        self, accelerator: Accelerator, stream: Any, last: int
    ) -> None:
        """Require that device 0's stream is still current after a different device was selected."""
        usual = accelerator.current_stream()
        accelerator.set_stream(stream)
        for index in (0, last, 0):
            accelerator.set_device(index)
        after = accelerator.current_stream()
        accelerator.set_stream(usual)
        require(
            after == stream,
            f"set_stream(s), set_device({last}), set_device(0): the current stream is not s",
        )

    def _require_streams_of_device_restore(
        self, accelerator: Accelerator, last: int
    ) -> None:
        """Require that blocks with streams of the last device restore the streams of both devices."""
        other, stream = (
            accelerator.Stream(device=accelerator.device(last)) for _ in range(2)
        )
        usual = accelerator.current_stream()
        usual_on_last = accelerator.current_stream(last)
        with accelerator.device_guard(last):
            accelerator.set_stream(stream)
            selected = accelerator.current_device()
            accelerator.set_stream(usual_on_last)
        require(
            selected == last,
            f"set_stream(s) with a stream of the selected device {last} selected device {selected}",
        )
        with (
            accelerator.stream(stream),
            accelerator.device_guard(0),
            accelerator.stream(other),
        ):
            pass
        on_last = accelerator.current_stream(last)
        require(
            on_last == usual_on_last,
            f"after stream(a) with device_guard(0) and stream(b) inside, where a and b are of device {last}, "
            f"current_stream({last}) is {on_last}; expected {usual_on_last}",
        )
        for ending in ("", "an error in "):
            if ending:
                block = accelerator.stream(other)
                _require_error_leaves(block, f"stream(s) of device {last}")
            else:
                with accelerator.stream(other):
                    pass
            situation = f"after {ending}stream(s) with a stream of device {last}, while device 0 is current,"
            current = accelerator.current_stream()
            require(
                current == usual,
                f"{situation} current_stream() is {current}; expected {usual}",
            )
            selected = accelerator.current_device()
            require(selected == 0, f"{situation} current_device() returned {selected}")
            on_last = accelerator.current_stream(last)
            require(
                on_last == usual_on_last,
                f"{situation} current_stream({last}) is {on_last}; expected {usual_on_last}, as "
                "before the block",
            )

    def test_new_threads_find_nothing_of_others(self, accelerator: Accelerator) -> None:
        """A new thread starts with the same device, stream and modes, whatever other threads select."""
        last = accelerator.device_count() - 1
        ones = torch.ones(8, 8, device=accelerator.device(0))

        def observe() -> dict[str, Any]:
            return self._thread_state(accelerator, ones, last)

        usual = _in_thread(observe)
        first_device = usual["current_device()"]
        require(
            first_device == 0,
            f"in a new thread, current_device() returned {first_device}; expected 0",
        )
        accelerator.set_device(last)
        try:
            with (
                accelerator.stream(accelerator.Stream()),
                accelerator.autocast(),
                torch.no_grad(),
            ):
                inside = _in_thread(observe)
            after = _in_thread(observe)
            stream_before = accelerator.current_stream()
            accelerator.set_stream(accelerator.Stream())
            with_stream_set = _in_thread(observe)
            accelerator.set_stream(stream_before)
        finally:
            accelerator.set_device(0)
        for when, answers in (
            ("inside", inside),
            ("after", after),
            ("after set_stream(s), outside", with_stream_set),
        ):
            for name, expected in usual.items():
                require(
                    answers[name] == expected,
                    f"a thread that starts while another thread has device {last}, {when} "
                    f"stream(s) and autocast(), has {answers[name]} for {name}; "
                    f"expected {expected}, as in an earlier thread",
                )

    def _thread_state(
        self, accelerator: Accelerator, ones: torch.Tensor, last: int
    ) -> dict[str, Any]:
        """Return the state of this thread: the selected device, the streams, and torch's modes."""
        device_type = accelerator.device_type
        state: dict[str, Any] = {
            "current_device()": accelerator.current_device(),
            "current_device_name()": accelerator.current_device_name(),
        }
        if accelerator.is_accelerator():  # the CPU's stream belongs to the process
            state["current_stream(0)"] = accelerator.current_stream(0)
            state[f"current_stream({last})"] = accelerator.current_stream(last)
            state["current_stream()"] = accelerator.current_stream()
        new_tensor = torch.ones(1, device=device_type)
        state["the device of a new tensor"] = new_tensor.device
        float_tensor = accelerator.FloatTensor([1.0])
        state["the device of FloatTensor([1])"] = float_tensor.device
        state["the type of a product of float32"] = (ones @ ones).dtype
        state["torch.is_autocast_enabled"] = torch.is_autocast_enabled(device_type)
        state["torch.is_grad_enabled()"] = torch.is_grad_enabled()
        return state

    def test_threads_are_heard(self, accelerator: Accelerator) -> None:
        """Selecting, guarding, casting, seeding and resetting have the same effect in every thread."""
        observations = _observations(accelerator)
        expected = {}
        for name, observe in observations.items():
            # Other checks report unsupported members.
            with contextlib.suppress(Exception):
                expected[name] = observe()
        accelerator.set_device(0)

        def observe_all() -> dict[str, Any]:
            return {name: observations[name]() for name in expected}

        in_thread = _in_thread(observe_all)
        for name, value in expected.items():
            require(
                in_thread[name] == value,
                f"{name} returned {in_thread[name]} in another thread, but {value} in the first thread",
            )
        accelerator.manual_seed(3)
        first = torch.rand(4, device=accelerator.device(0)).tolist()
        _in_thread(lambda: accelerator.manual_seed(3))
        again = torch.rand(4, device=accelerator.device(0)).tolist()
        require(
            again == first,
            f"after manual_seed(3) in another thread, draws gave {again}; expected {first}",
        )


def _observations(accelerator: Accelerator) -> dict[str, Callable[[], Any]]:
    """Return functions that change a setting of the thread, return the effect, and undo the change."""
    return {
        **_observations_of_devices(accelerator),
        **_observations_of_streams(accelerator),
        **_observations_of_generators(accelerator),
        **_observations_of_memory(accelerator),
    }


def _inside(
    make_block: Callable[[], AbstractContextManager[Any]], member: Callable[[], Any]
) -> Callable[[], Any]:
    """Return a function that calls `member` inside a block."""

    def observe() -> Any:
        with make_block():
            return member()

    return observe


def _observations_of_devices(
    accelerator: Accelerator,
) -> dict[str, Callable[[], Any]]:
    """Return functions that select the last device in two ways, and return the device then used."""
    last = accelerator.device_count() - 1

    def after_selecting(member: Callable[[], Any]) -> Callable[[], Any]:
        def observe() -> Any:
            accelerator.set_device(last)
            try:
                return member()
            finally:
                accelerator.set_device(0)

        return observe

    def device_of_new_tensor() -> torch.device:
        return torch.ones(1, device=accelerator.device_type).device

    members: dict[str, Callable[[], Any]] = {
        "current_device()": accelerator.current_device,
        "current_device_name()": accelerator.current_device_name,
        "the device of a new tensor": device_of_new_tensor,
        "the device of FloatTensor([1])": lambda: accelerator.FloatTensor([1.0]).device,
    }
    observations = {}
    for name, member in members.items():
        observations[f"{name} after set_device({last})"] = after_selecting(member)
        observations[f"{name} inside device_guard({last})"] = _inside(
            lambda: accelerator.device_guard(last), member
        )
    return observations


def _observations_of_streams(
    accelerator: Accelerator,
) -> dict[str, Callable[[], Any]]:
    """Return functions that make a stream current, or cast, and return the effect."""
    stream = accelerator.Stream()
    dtype = accelerator.supported_dtypes()[-1]
    ones = torch.ones(8, 8, device=accelerator.device(0))

    def is_current() -> bool:
        return accelerator.current_stream() == stream

    def is_current_after_set_stream() -> bool:
        before = accelerator.current_stream()
        accelerator.set_stream(stream)
        was_current = is_current()
        accelerator.set_stream(before)
        return was_current

    def is_done_after_synchronize() -> bool:
        with accelerator.stream(stream):
            stream.wait_stream(accelerator.default_stream())
            total = torch.zeros(1 << 16, device=accelerator.device(0))
            total += 1
        accelerator.synchronize()
        return bool(total.sum().item() == 1 << 16)

    return {
        "current_stream() == s inside stream(s)": _inside(
            lambda: accelerator.stream(stream), is_current
        ),
        "current_stream() == s after set_stream(s)": is_current_after_set_stream,
        f"the type of a product inside autocast({dtype})": _inside(
            lambda: accelerator.autocast(dtype), lambda: (ones @ ones).dtype
        ),
        "whether work on a stream is done after synchronize()": is_done_after_synchronize,
    }


def _observations_of_generators(
    accelerator: Accelerator,
) -> dict[str, Callable[[], Any]]:
    """Return functions that seed, restore or fork the generators, and return the next draws."""
    last = accelerator.device_count() - 1

    def draw() -> list[float]:
        numbers = torch.rand(4, device=accelerator.device(0)).tolist()
        return [*numbers, *torch.rand(4, device=accelerator.device(last)).tolist()]

    def after_seeding(seed: Callable[[], Any]) -> Callable[[], Any]:
        def observe() -> Any:
            accelerator.default_generator(0).manual_seed(1)
            accelerator.default_generator(last).manual_seed(1)
            seed()
            return draw(), accelerator.initial_seed()

        return observe

    def after_restoring() -> Any:
        accelerator.manual_seed_all(4)
        state = accelerator.get_rng_state(last)
        draw()
        accelerator.set_rng_state(state, last)
        return torch.rand(4, device=accelerator.device(last)).tolist()

    def after_forking() -> Any:
        accelerator.manual_seed_all(5)
        with accelerator.fork_rng():
            draw()
        return draw()

    return {
        "the next draws and initial_seed() after manual_seed(2)": after_seeding(
            lambda: accelerator.manual_seed(2)
        ),
        "the next draws and initial_seed() after manual_seed_all(3)": after_seeding(
            lambda: accelerator.manual_seed_all(3)
        ),
        f"the next draws after set_rng_state(state, {last})": after_restoring,
        "the next draws after fork_rng()": after_forking,
    }


def _observations_of_memory(
    accelerator: Accelerator,
) -> dict[str, Callable[[], Any]]:
    """Return functions that allocate memory, and return whether it is counted; none for the CPU."""
    if not accelerator.is_accelerator():
        return {}

    def is_counted() -> bool:
        before = accelerator.memory_allocated(0)
        block = torch.empty(_MEBIBYTE, dtype=torch.uint8, device=accelerator.device(0))
        after = accelerator.memory_allocated(0)
        del block
        return after >= before + _MEBIBYTE

    def is_peak_reset() -> bool:
        torch.empty(4 * _MEBIBYTE, dtype=torch.uint8, device=accelerator.device(0))
        accelerator.reset_peak_memory_stats(0)
        return accelerator.max_memory_allocated(0) == accelerator.memory_allocated(0)

    return {
        "whether memory_allocated(0) counts a mebibyte": is_counted,
        "max_memory_allocated(0) == memory_allocated(0) after reset_peak_memory_stats(0)": is_peak_reset,
    }


def _in_thread(function: Callable[[], Any]) -> Any:
    """Run the function in a new thread, and return its result or raise its error in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
