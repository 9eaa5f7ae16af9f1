"""Blocks that change something for a while: what they restore, nested and after an error, in every thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, skip_unsupported

__all__ = ["TestGuards"]

_MEBIBYTE = 1 << 20


class _Lost(Exception):  # noqa: N818 - it is raised to be caught
    """Error raised inside the blocks."""


#: What may go wrong in a block: a vendor's error, a wrong name, anything, and Ctrl-C.
_ERRORS = (RuntimeError, KeyError, _Lost, KeyboardInterrupt)


def _broken_off(
    block: AbstractContextManager[Any], what: str, kind: type[BaseException] = _Lost
) -> None:
    """Leave a block by an error, which must come out of it."""
    came = False
    try:
        with block:
            raise kind
    except kind:
        came = True
    require(
        came,
        f"a {kind.__name__} raised inside {what} did not come out of it: {what} must not catch it",
    )


class TestGuards(BackendTestBase):
    """After a block everything is as before this block, and not as at the start of the process."""

    def test_errors_come_out_of_blocks(self, accelerator: Accelerator) -> None:
        """No context manager swallows the error of what runs in it: training would go on with half a step."""
        now = accelerator.current_stream()
        blocks: dict[str, Callable[[], AbstractContextManager[Any]]] = {
            "device_guard(0)": lambda: accelerator.device_guard(0),
            "device_guard(None)": lambda: accelerator.device_guard(None),
            "stream(current_stream())": lambda: accelerator.stream(now),
            "stream(None)": lambda: accelerator.stream(None),
            "stream(Stream())": lambda: accelerator.stream(accelerator.Stream()),
            "fork_rng()": accelerator.fork_rng,
            "autocast()": accelerator.autocast,
            "range('block')": lambda: accelerator.range("block"),
            "capture_to_graph(None)": lambda: accelerator.capture_to_graph(None),
        }
        for what, block in blocks.items():
            for kind in _ERRORS:
                _broken_off(block(), what, kind)

    def test_device_guards_nest(self, accelerator: Accelerator) -> None:
        """`device_guard` restores the device selected before it, whichever that is, in nested blocks too."""
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            skip_unsupported("there is one device")
        current = accelerator.current_device
        for before, other in ((0, last), (last, 0)):
            accelerator.set_device(before)
            made = accelerator.device_guard(other)
            accelerator.set_device(before)
            with made:
                require(
                    current() == other,
                    f"inside device_guard({other}) current_device() gave {current()}",
                )
                with accelerator.device_guard(before):
                    pass
                require(
                    current() == other,
                    f"device_guard({before}) ended inside device_guard({other}): current_device() gave "
                    f"{current()}; expected {other}",
                )
                _broken_off(accelerator.device_guard(before), f"device_guard({before})")
                require(
                    current() == other,
                    f"after an error in device_guard({before}) inside device_guard({other}) current_device() "
                    f"gave {current()}; expected {other}",
                )
            require(
                current() == before,
                f"set_device({before}), then device_guard({other}) with blocks in it: afterwards "
                f"current_device() gave {current()}; expected {before}",
            )
            _broken_off(accelerator.device_guard(other), f"device_guard({other})")
            require(
                current() == before,
                f"set_device({before}), then an error in device_guard({other}): current_device() gave "
                f"{current()}; expected {before}",
            )
            for guarded in (before, other):
                selected = before + other - guarded
                with accelerator.device_guard(guarded):
                    accelerator.set_device(selected)
                require(
                    current() == before,
                    f"set_device({before}), then set_device({selected}) inside device_guard({guarded}): "
                    f"afterwards current_device() gave {current()}; expected {before}",
                )
            guard = accelerator.device_guard(before)
            accelerator.set_device(other)
            with guard:
                pass
            require(
                current() == other,
                f"device_guard({before}) was made on device {before} and entered on device {other}: "
                f"afterwards current_device() gave {current()}; expected {other}",
            )
            with contextlib.suppress(ValueError):
                accelerator.set_device(4096)
            require(
                current() == other,
                f"a refused set_device(4096) made {current()} the current device; expected {other}",
            )

    def test_streams_nest(self, accelerator: Accelerator) -> None:
        """`stream(s)` restores the stream and the device before it, in nested blocks too."""
        first, second, third = (accelerator.Stream() for _ in range(3))
        if getattr(first, "one_queue", False) or first == second:
            skip_unsupported("every stream is the only one")
        usual, current = accelerator.current_stream(), accelerator.current_stream
        accelerator.set_stream(first)
        try:
            with accelerator.stream(second):
                with accelerator.stream(third):
                    pass
                require(
                    current() == second,
                    "stream(b) ended inside stream(a): the current stream is not a",
                )
                _broken_off(accelerator.stream(third), "stream(b)")
                require(
                    current() == second,
                    "after an error in stream(b) inside stream(a) it is not a",
                )
                with accelerator.stream(None):
                    inside = current()
                require(
                    inside == second,
                    "inside stream(None), inside stream(a), the current stream is not a",
                )
                require(
                    current() == second,
                    "after stream(None), inside stream(a), the current one is not a",
                )
            said = "the current stream is not the one that set_stream(s) set before"
            require(current() == first, f"after stream(a) with blocks in it {said}")
            _broken_off(accelerator.stream(second), "stream(a)")
            require(current() == first, f"after an error in stream(a) {said}")
            with accelerator.stream(second):
                accelerator.set_stream(third)
            require(
                current() == first, f"after stream(a) with set_stream(b) in it {said}"
            )
        finally:
            accelerator.set_stream(usual)
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            return
        accelerator.set_stream(first)
        for index in (0, last, 0):
            accelerator.set_device(index)
        found = current()
        accelerator.set_stream(usual)
        require(
            found == first,
            f"set_stream(s), set_device({last}), set_device(0): the current stream is not s",
        )
        other, there = (
            accelerator.Stream(device=accelerator.device(last)) for _ in range(2)
        )
        usual_there = accelerator.current_stream(last)
        with accelerator.device_guard(last):
            accelerator.set_stream(there)
            now = accelerator.current_device()
            accelerator.set_stream(usual_there)
        require(
            now == last,
            f"set_stream(s), s of device {last}, which was selected, selected device {now}",
        )
        with (
            accelerator.stream(there),
            accelerator.device_guard(0),
            accelerator.stream(other),
        ):
            pass
        found = accelerator.current_stream(last)
        require(
            found == usual_there,
            f"after stream(a), both of device {last}, with device_guard(0) and stream(b) in it "
            f"current_stream({last}) is {found}; expected {usual_there}",
        )
        for how in ("", "an error in "):
            if how:
                _broken_off(accelerator.stream(other), f"stream(s) of device {last}")
            else:
                with accelerator.stream(other):
                    pass
            said = f"after {how}stream(s), s of device {last}, while device 0 is the current one,"
            require(
                current() == usual,
                f"{said} current_stream() is {current()}; expected {usual}",
            )
            now = accelerator.current_device()
            require(now == 0, f"{said} current_device() gave {now}")
            found = accelerator.current_stream(last)
            require(
                found == usual_there,
                f"{said} current_stream({last}) is {found}; expected {usual_there}, which it was before",
            )

    def test_new_threads_find_nothing_of_others(self, accelerator: Accelerator) -> None:
        """A new thread finds the same device, stream and modes, whatever other threads have selected."""
        last = accelerator.device_count() - 1
        ones = torch.ones(8, 8, device=accelerator.device(0))

        def streams() -> dict[str, Any]:  # torch.cpu's are the process's
            return {
                "current_stream(0)": accelerator.current_stream(0),
                f"current_stream({last})": accelerator.current_stream(last),
                "current_stream()": accelerator.current_stream(),
            }

        def found() -> dict[str, Any]:
            return {
                "current_device()": accelerator.current_device(),
                "current_device_name()": accelerator.current_device_name(),
                **(streams() if accelerator.is_accelerator() else {}),
                "the device of a new tensor": torch.ones(
                    1, device=accelerator.device_type
                ).device,
                "the device of FloatTensor([1])": accelerator.FloatTensor([1.0]).device,
                "the type of a product of float32": (ones @ ones).dtype,
                "torch.is_autocast_enabled": torch.is_autocast_enabled(
                    accelerator.device_type
                ),
                "torch.is_grad_enabled()": torch.is_grad_enabled(),
            }

        usual = _in_thread(found)
        begins = usual["current_device()"]
        require(
            begins == 0,
            f"in a thread that selected no device current_device() gave {begins}; expected 0",
        )
        accelerator.set_device(last)
        try:
            with (
                accelerator.stream(accelerator.Stream()),
                accelerator.autocast(),
                torch.no_grad(),
            ):
                inside = _in_thread(found)
            after = _in_thread(found)
            before = accelerator.current_stream()
            accelerator.set_stream(accelerator.Stream())
            beside = _in_thread(found)
            accelerator.set_stream(before)
        finally:
            accelerator.set_device(0)
        for when, answers in (
            ("inside", inside),
            ("after", after),
            ("with set_stream(s) beside", beside),
        ):
            for name, expected in usual.items():
                require(
                    answers[name] == expected,
                    f"a thread that begins while another has device {last}, {when} "
                    f"its stream(s) and autocast(), finds for {name} {answers[name]}; "
                    f"a thread before found {expected}",
                )

    def test_threads_are_heard(self, accelerator: Accelerator) -> None:
        """Selecting, guarding, casting, seeding and resetting have the same effect in every thread."""
        steps = _steps(accelerator)
        here = {}
        for name, step in steps.items():
            with contextlib.suppress(
                Exception
            ):  # what the device has not, other checks tell
                here[name] = step()
        accelerator.set_device(0)

        def tell() -> dict[str, Any]:
            return {name: steps[name]() for name in here}

        there = _in_thread(tell)
        for name, expected in here.items():
            given = there[name]
            require(
                given == expected,
                f"in another thread {name} gave {given}; the same in the first thread gave {expected}",
            )
        accelerator.manual_seed(3)
        first = torch.rand(4, device=accelerator.device(0)).tolist()
        _in_thread(lambda: accelerator.manual_seed(3))
        again = torch.rand(4, device=accelerator.device(0)).tolist()
        require(
            again == first,
            f"another thread's manual_seed(3) was followed by {again}; expected {first}",
        )


def _steps(accelerator: Accelerator) -> dict[str, Callable[[], Any]]:
    """Steps of a thread, each with what it sees then; all is as before afterwards."""
    last = accelerator.device_count() - 1
    place = accelerator.device(last)
    ones = torch.ones(8, 8, device=accelerator.device(0))
    side, best = accelerator.Stream(), accelerator.supported_dtypes()[-1]

    def drawn() -> list[float]:
        return [
            *torch.rand(4, device=accelerator.device(0)).tolist(),
            *torch.rand(4, device=place).tolist(),
        ]

    def after_selecting(member: Callable[[], Any]) -> Callable[[], Any]:
        def step() -> Any:
            accelerator.set_device(last)
            try:
                return member()
            finally:
                accelerator.set_device(0)

        return step

    def inside(
        block: Callable[[], AbstractContextManager[Any]], member: Callable[[], Any]
    ) -> Callable[[], Any]:
        def step() -> Any:
            with block():
                return member()

        return step

    def set_stream() -> bool:
        before = accelerator.current_stream()
        accelerator.set_stream(side)
        found = accelerator.current_stream() == side
        accelerator.set_stream(before)
        return found

    def seeded(seed: Callable[[], Any]) -> Callable[[], Any]:
        def step() -> Any:
            accelerator.default_generator(0).manual_seed(1)
            accelerator.default_generator(last).manual_seed(1)
            seed()
            return drawn(), accelerator.initial_seed()

        return step

    def restored() -> Any:
        accelerator.manual_seed_all(4)
        state = accelerator.get_rng_state(last)
        drawn()
        accelerator.set_rng_state(state, last)
        return torch.rand(4, device=place).tolist()

    def forked() -> Any:
        accelerator.manual_seed_all(5)
        with accelerator.fork_rng():
            drawn()
        return drawn()

    def grown() -> bool:
        before = accelerator.memory_allocated(0)
        block = torch.empty(_MEBIBYTE, dtype=torch.uint8, device=accelerator.device(0))
        after = accelerator.memory_allocated(0)
        del block
        return after >= before + _MEBIBYTE

    def peak() -> bool:
        torch.empty(4 * _MEBIBYTE, dtype=torch.uint8, device=accelerator.device(0))
        accelerator.reset_peak_memory_stats(0)
        return accelerator.max_memory_allocated(0) == accelerator.memory_allocated(0)

    def waited() -> bool:
        with accelerator.stream(side):
            side.wait_stream(accelerator.default_stream())
            total = torch.zeros(1 << 16, device=accelerator.device(0))
            total += 1
        accelerator.synchronize()
        return bool(total.sum().item() == 1 << 16)

    of_memory = {
        "whether memory_allocated(0) counts a mebibyte": grown,
        "max_memory_allocated(0) == memory_allocated(0) after reset_peak_memory_stats(0)": peak,
    }
    follow = {
        "current_device()": accelerator.current_device,
        "current_device_name()": accelerator.current_device_name,
        "the device of a new tensor": lambda: (
            torch.ones(1, device=accelerator.device_type).device
        ),
        "the device of FloatTensor([1])": lambda: accelerator.FloatTensor([1.0]).device,
    }
    return {
        **{
            f"{name} after set_device({last})": after_selecting(member)
            for name, member in follow.items()
        },
        **{
            f"{name} inside device_guard({last})": inside(
                lambda: accelerator.device_guard(last), member
            )
            for name, member in follow.items()
        },
        "current_stream() == s inside stream(s)": inside(
            lambda: accelerator.stream(side),
            lambda: accelerator.current_stream() == side,
        ),
        "current_stream() == s after set_stream(s)": set_stream,
        f"the type of a product inside autocast({best})": inside(
            lambda: accelerator.autocast(best), lambda: (ones @ ones).dtype
        ),
        "what is drawn, and initial_seed(), after manual_seed(2)": seeded(
            lambda: accelerator.manual_seed(2)
        ),
        "what is drawn, and initial_seed(), after manual_seed_all(3)": seeded(
            lambda: accelerator.manual_seed_all(3)
        ),
        f"what is drawn after set_rng_state(state, {last})": restored,
        "what is drawn after fork_rng()": forked,
        **(of_memory if accelerator.is_accelerator() else {}),
        "whether work on a stream is done after synchronize()": waited,
    }


def _in_thread(work: Callable[[], Any]) -> Any:
    """The result of a new thread; what it raises is raised here."""
    told: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            told.append(work())
        except Exception as error:
            failed.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return told[0]
