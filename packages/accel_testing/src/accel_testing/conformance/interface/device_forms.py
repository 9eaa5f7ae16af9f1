"""Check that members use the named device, in whichever form the device is passed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from accel_core import Accelerator, UnsupportedError
from accel_testing.conformance.claims import BrokenPromise, require, require_raises

__all__ = [
    "device_forms",
    "is_same_answer",
    "members_with_device_index",
    "require_actions_on_named_device",
    "require_answers_on_named_device",
    "require_selection_by_any_form",
]

_MEBIBYTE = 1 << 20
#: A number of bytes whose copy on the device takes milliseconds.
_LARGE = 16 * _MEBIBYTE
_RESETS = (
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)
#: Members whose results cannot be compared, because they select, wait or reset.
_ACTING = ("set_device", "synchronize", "reset_accumulated_memory_stats", *_RESETS)


def members_with_device_index() -> list[str]:
    """Return the members whose first parameter is `device_index`, except those for devices themselves."""
    excluded = ("device_name", "device", "device_guard", "default_generator")
    names = []
    for name in dir(Accelerator):
        member = inspect.getattr_static(Accelerator, name)
        if name.startswith("_") or not inspect.isfunction(member) or name in excluded:
            continue
        parameters = list(inspect.signature(member).parameters.values())[1:]
        if parameters and parameters[0].name == "device_index":
            names.append(name)
    return names


def device_forms(accelerator: Accelerator, index: int) -> list[Any]:
    """Return every form of naming a device, including the text of an index, which DeepSpeed passes."""
    device_type = accelerator.device_type
    device = torch.device(device_type, index)
    name = accelerator.device_name(index)
    return [
        index,
        str(index),
        accelerator.device(index),
        device,
        name,
        f"{device_type}:{index}",
    ]


def is_same_answer(first: Any, second: Any) -> bool:
    """Return whether two results of a member are equal; generators are compared by seed and state."""
    if isinstance(first, torch.Generator) and isinstance(second, torch.Generator):
        return first.initial_seed() == second.initial_seed() and torch.equal(
            first.get_state(), second.get_state()
        )
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return torch.equal(first, second)
    return bool(first == second)


def _forms_without_index(accelerator: Accelerator) -> list[Any]:
    """Return the forms that name a device type without an index, which mean the current device."""
    return [accelerator.device_type, torch.device(accelerator.device_type)]


def _answer(accelerator: Accelerator, name: str, *form: Any) -> Any:
    """Return a member's result; return the class `UnsupportedError` if the member is not supported."""
    try:
        return getattr(accelerator, name)(*form)
    except UnsupportedError:
        return UnsupportedError
    except Exception as error:
        arguments = ", ".join(map(repr, form))
        raise BrokenPromise(
            f"{name}({arguments}) raised {type(error).__name__}: {error}"
        ) from error


def _make_different(accelerator: Accelerator, last: int) -> list[torch.Tensor]:
    """Give the first and last device different seeds and memory in use; return tensors to keep alive."""
    for index, count in ((0, 3), (last, 5)):
        accelerator.default_generator(index).manual_seed(40 + index)
        torch.rand(count, device=accelerator.device(index))
        if index > 0:
            torch.rand(1, device=accelerator.device(index))
            torch.rand(1, device=accelerator.device(index))
    tensors = [torch.ones(1024, device=accelerator.device(0))]
    tensors += [torch.ones(_MEBIBYTE, device=accelerator.device(last))]
    torch.empty(_MEBIBYTE * 3, device=accelerator.device(last))  # this raises the peak
    return tensors


def require_answers_on_named_device(accelerator: Accelerator, last: int) -> None:
    """Require equal results for each form of the last device, while the first device is current."""
    tensors = _make_different(accelerator, last)
    names = [name for name in members_with_device_index() if name not in _ACTING]
    names += ["device", "device_name", "default_generator"]
    for name in names:
        for form in device_forms(accelerator, last):
            answer, expected = _compare_answers(accelerator, name, form, last)
            require(
                is_same_answer(answer, expected),
                f"with device 0 current, {name}({form!r}) returned {answer!r}, but {name}({last}) returned "
                f"{expected!r}; expected equal results",
            )
        current = accelerator.current_device()
        require(
            current == 0,
            f"{name} of device {last} changed the current device to {current}; expected 0",
        )
    accelerator.set_device(last)
    for name in names:
        usual = last if name == "default_generator" else None
        for form in _forms_without_index(accelerator):
            answer, expected = _compare_answers(accelerator, name, form, usual)
            require(
                is_same_answer(answer, expected),
                f"with device {last} current, {name}({form!r}) returned {answer!r}; expected "
                f"{expected!r}, as {name}({usual}): a type without an index means the current device",
            )
    accelerator.set_device(0)
    del tensors


def _compare_answers(
    accelerator: Accelerator, name: str, form: Any, usual_form: Any
) -> tuple[Any, Any]:
    """Return a member's results for two forms; if they differ, the second call is repeated.

    The call is repeated because another process may allocate memory between two calls.
    """
    expected = _answer(accelerator, name, usual_form)
    answer = _answer(accelerator, name, form)
    if not is_same_answer(answer, expected):
        expected = _answer(accelerator, name, usual_form)
    return answer, expected


def require_selection_by_any_form(accelerator: Accelerator, last: int) -> None:
    """Require that each form selects its device, and that a type without an index changes nothing."""
    current = accelerator.current_device
    for form in device_forms(accelerator, last):
        _require_selection(accelerator, 0, form, last)
    for form in _forms_without_index(accelerator):
        _require_selection(accelerator, last, form, last)
    for form in device_forms(accelerator, 0):
        accelerator.set_device(last)
        accelerator.set_device(form)
        require(
            current() == 0,
            f"with device {last} current, set_device({form!r}) changed the current device to {current()}; "
            "expected 0",
        )
    accelerator.set_device(0)
    if not getattr(accelerator.Stream, "one_queue", False):
        _require_streams_on_named_device(accelerator, last)


def _require_selection(
    accelerator: Accelerator, before: int, form: Any, selected: int
) -> None:
    """Require that `set_device` and `device_guard` with `form` select the device `selected`."""
    current = accelerator.current_device
    accelerator.set_device(before)
    accelerator.set_device(form)
    situation = f"with device {before} current"
    require(
        current() == selected,
        f"{situation}, set_device({form!r}) changed the current device to {current()}; expected {selected}",
    )
    device = torch.empty(1, device=accelerator.device_type).device
    require(
        device.index in (None, selected),
        f"{situation}, after set_device({form!r}) a tensor is on {device}; expected device {selected}",
    )
    accelerator.set_device(before)
    with accelerator.device_guard(form):
        inside = current()
    require(
        inside == selected,
        f"{situation}, inside device_guard({form!r}) current_device() returned {inside}; expected {selected}",
    )
    require(
        current() == before,
        f"{situation}, after device_guard({form!r}) current_device() returned {current()}; expected {before}",
    )


def _require_streams_on_named_device(accelerator: Accelerator, last: int) -> None:
    """Require that `Stream` creates a stream on the given device, by default the current device."""
    device = accelerator.device(last)
    # `Stream` is the vendor's class, which takes torch's forms; the text "1" is not among them.
    for form in (last, device, str(device)):
        stream = accelerator.Stream(device=form)
        require(
            stream.device == device,
            f"with device 0 current, Stream(device={form!r}) is a stream of {stream.device}; "
            f"expected {device}",
        )
        current = accelerator.current_device()
        require(
            current == 0,
            f"Stream(device={form!r}) changed the current device to {current}; expected 0",
        )
    with accelerator.device_guard(last):
        stream = accelerator.Stream()
    require(
        stream.device == device,
        f"with device {last} current, Stream() is a stream of {stream.device}; expected {device}",
    )


def require_actions_on_named_device(accelerator: Accelerator, last: int) -> None:
    """Require that members that wait, reset or restore act on the device that each form names."""
    cases: list[tuple[int, Any]] = []
    cases += [(0, form) for form in device_forms(accelerator, last)]
    cases += [(last, form) for form in (None, *_forms_without_index(accelerator))]
    for before, form in cases:
        accelerator.set_device(before)
        situation = f"with device {before} current"
        _require_wait(accelerator, last, form, situation)
        _require_reset(accelerator, last, form, situation)
        _require_restore(accelerator, last, form, situation)
        _require_limit(accelerator, last, form, situation)
        after = accelerator.current_device()
        require(
            after == before,
            f"{situation}, members called with {form!r} changed the current device to {after}",
        )
    accelerator.set_device(0)


def _require_wait(
    accelerator: Accelerator, last: int, form: Any, situation: str
) -> None:
    """Require that `synchronize(form)` waits for work on a stream of the last device."""
    if getattr(accelerator.Stream, "one_queue", False):
        return
    with accelerator.device_guard(last):
        stream = accelerator.Stream(device=accelerator.device(last))
        source = torch.ones(_LARGE, dtype=torch.uint8, device=accelerator.device(last))
        target = torch.zeros_like(source)
        accelerator.synchronize()
        with accelerator.stream(stream):
            for _ in range(20):
                target.copy_(source, non_blocking=True)
            event = stream.record_event()
    accelerator.synchronize(form)
    is_done = event.query()
    stream.synchronize()
    require(
        is_done is True,
        f"{situation}, copies on a stream of device {last}, e recorded after them, synchronize({form!r}): "
        f"e.query() returned {is_done!r}; expected True",
    )


def _memory_amounts(accelerator: Accelerator) -> list[tuple[int, int]]:
    """Return the peak and the current amount of memory on the first and on the last device."""
    devices = (0, accelerator.device_count() - 1)
    return [
        (accelerator.max_memory_allocated(index), accelerator.memory_allocated(index))
        for index in devices
    ]


def _require_reset(
    accelerator: Accelerator, last: int, form: Any, situation: str
) -> None:
    """Require that each reset with `form` affects the last device, and not the first device."""
    accelerator.synchronize(0)
    accelerator.synchronize(last)
    for name in _RESETS:
        for index in (0, last):
            torch.empty(
                2 * _MEBIBYTE, dtype=torch.uint8, device=accelerator.device(index)
            )
        before = _memory_amounts(accelerator)
        getattr(accelerator, name)(form)
        after = _memory_amounts(accelerator)
        require(
            after[0] == before[0],
            f"{situation}, {name}({form!r}) changed (max_memory_allocated(0), memory_allocated(0)) from "
            f"{before[0]} to {after[0]}; expected no change: the argument names device {last}",
        )
        peak, allocated = after[1]
        require(
            peak == allocated,
            f"{situation}, after {name}({form!r}) max_memory_allocated({last}) is {peak}, and "
            f"memory_allocated({last}) {allocated}; expected equal amounts",
        )
    key, name = "allocated_bytes.all.allocated", "reset_accumulated_memory_stats"
    if key not in accelerator.memory_stats(last):
        return
    first_total = accelerator.memory_stats(0)[key]
    getattr(accelerator, name)(form)
    totals = accelerator.memory_stats(0)[key], accelerator.memory_stats(last)[key]
    require(
        totals == (first_total, 0),
        f"{situation}, after {name}({form!r}) memory_stats(i)[{key!r}] of the devices 0 and {last} "
        f"is {totals}; "
        f"expected {(first_total, 0)}",
    )


def _require_restore(
    accelerator: Accelerator, last: int, form: Any, situation: str
) -> None:
    """Require that `set_rng_state` and `fork_rng` with `form` restore only the last device's generator."""

    def draw(index: int) -> list[float]:
        return torch.rand(8, device=accelerator.device(index)).tolist()

    def states() -> list[torch.Tensor]:
        return [accelerator.get_rng_state(index) for index in (0, last)]

    accelerator.default_generator(0).manual_seed(61)
    accelerator.default_generator(last).manual_seed(62)
    last_state = accelerator.get_rng_state(last)
    draw(0)
    first = draw(last)
    first_state = accelerator.get_rng_state(0)
    accelerator.set_rng_state(last_state, form)
    is_changed = not torch.equal(accelerator.get_rng_state(0), first_state)
    require(
        not is_changed,
        f"{situation}, set_rng_state(state, {form!r}) changed the generator of device 0",
    )
    again = draw(last)
    require(
        again == first,
        f"{situation}, after set_rng_state(state, {form!r}) device {last} draws {again[:2]}…; expected "
        f"{first[:2]}…, the earlier draw from this state",
    )
    before = states()
    with accelerator.fork_rng(devices=[form]):
        draw(0)
        draw(last)
    after = states()
    restored = [
        torch.equal(state, state_after)
        for state, state_after in zip(before, after, strict=True)
    ]
    require(
        restored == [False, True],
        f"{situation}, fork_rng(devices=[{form!r}]) restored the devices 0 and {last}: {restored}; expected "
        "[False, True]",
    )


def _require_limit(
    accelerator: Accelerator, last: int, form: Any, situation: str
) -> None:
    """Require that a memory limit set with `form` applies to the last device."""
    accelerator.empty_cache()
    set_fraction: Callable[[float], Any] = partial(
        accelerator.set_per_process_memory_fraction, device_index=form
    )
    size = accelerator.total_memory(last) // 8
    allocate_eighth = partial(
        torch.empty, size, dtype=torch.uint8, device=accelerator.device(last)
    )
    try:
        set_fraction(0.05)
    except UnsupportedError:
        return
    try:
        limited = f"{situation}, set_per_process_memory_fraction(0.05, {form!r})"
        description = f"{limited}, an eighth of device {last}'s memory"
        require_raises(allocate_eighth, torch.OutOfMemoryError, description)
    finally:
        for index in (0, last):
            with contextlib.suppress(UnsupportedError):
                accelerator.set_per_process_memory_fraction(1.0, index)
    torch.empty(_MEBIBYTE, dtype=torch.uint8, device=accelerator.device(last))
