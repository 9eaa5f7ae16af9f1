"""Devices named in every form that members take: what is asked, selected and changed is that device's."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from accel_core import Accelerator, UnsupportedError
from accel_testing.conformance.claims import require, require_raises

__all__ = [
    "alike",
    "device_forms",
    "forms_are_acted_on",
    "forms_are_answered",
    "forms_select",
    "indexed",
]

_MEBIBYTE = 1 << 20
#: Of bytes: a copy on the device takes milliseconds.
_LARGE = 16 * _MEBIBYTE
_RESETS = (
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)
#: Members without an answer to compare: they select, wait or reset.
_ACTING = ("set_device", "synchronize", "reset_accumulated_memory_stats", *_RESETS)


def indexed() -> list[str]:
    """Return the members that take a `device_index` and nothing else that has no default."""
    own_way = ("device_name", "device", "device_guard", "default_generator")
    found = []
    for name in dir(Accelerator):
        member = inspect.getattr_static(Accelerator, name)
        if name.startswith("_") or not inspect.isfunction(member) or name in own_way:
            continue
        parameters = list(inspect.signature(member).parameters.values())[1:]
        if parameters and parameters[0].name == "device_index":
            found.append(name)
    return found


def device_forms(accelerator: Accelerator, index: int) -> list[Any]:
    """Return every form in which a device is named; as text DeepSpeed has a rank's, from LOCAL_RANK."""
    kind = accelerator.device_type
    device = torch.device(kind, index)
    name = accelerator.device_name(index)
    return [
        index,
        str(index),
        accelerator.device(index),
        device,
        name,
        f"{kind}:{index}",
    ]


def alike(one: Any, other: Any) -> bool:
    """Whether two answers of a member are the same; of a generator its seed and state are compared."""
    if isinstance(one, torch.Generator) and isinstance(other, torch.Generator):
        return one.initial_seed() == other.initial_seed() and torch.equal(
            one.get_state(), other.get_state()
        )
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _types_alone(accelerator: Accelerator) -> list[Any]:
    """Return the forms that name a type of device and no index: they mean the current one."""
    return [accelerator.device_type, torch.device(accelerator.device_type)]


def _told(accelerator: Accelerator, name: str, *form: Any) -> Any:
    """Return a member's answer; `UnsupportedError` itself where the device cannot give one."""
    try:
        return getattr(accelerator, name)(*form)
    except UnsupportedError:
        return UnsupportedError
    except Exception as error:
        given = ", ".join(map(repr, form))
        require(False, f"{name}({given}) raised {type(error).__name__}: {error}")


def _make_unlike(accelerator: Accelerator, last: int) -> list[torch.Tensor]:
    """Give the first device and the last one other seeds, other states, and other memory in use."""
    for index, draws in ((0, 3), (last, 5)):
        accelerator.default_generator(index).manual_seed(40 + index)
        torch.rand(draws, device=accelerator.device(index))
        for _ in range(index and 2):
            torch.rand(1, device=accelerator.device(index))
    kept = [torch.ones(1024, device=accelerator.device(0))]
    kept += [torch.ones(_MEBIBYTE, device=accelerator.device(last))]
    torch.empty(_MEBIBYTE * 3, device=accelerator.device(last))  # its peak
    return kept


def forms_are_answered(accelerator: Accelerator, last: int) -> None:
    """Require of each member one answer for each form of the last device, while the first is current."""
    kept = _make_unlike(accelerator, last)
    asked = [name for name in indexed() if name not in _ACTING]
    asked += ["device", "device_name", "default_generator"]
    for name in asked:
        expected = _told(accelerator, name, last)
        for form in device_forms(accelerator, last):
            given = _told(accelerator, name, form)
            # Another process may take memory between two questions.
            same = alike(given, expected) or alike(
                given, expected := _told(accelerator, name, last)
            )
            require(
                same,
                f"with device 0 the current one {name}({form!r}) gave {given!r}, and {name}({last}) "
                f"{expected!r}; expected the same",
            )
        current = accelerator.current_device()
        require(
            current == 0,
            f"{name} of device {last} made {current} the current device; expected 0",
        )
    accelerator.set_device(last)
    for name in asked:
        none = last if name == "default_generator" else None
        for form in _types_alone(accelerator):
            given, expected = (
                _told(accelerator, name, form),
                _told(accelerator, name, none),
            )
            same = alike(given, expected) or alike(
                given, _told(accelerator, name, none)
            )
            require(
                same,
                f"with device {last} the current one {name}({form!r}) gave {given!r}; expected {expected!r}, "
                f"as {name}({none}): a type without an index means the current device",
            )
    accelerator.set_device(0)
    del kept


def forms_select(accelerator: Accelerator, last: int) -> None:
    """Require that a selecting member selects the device of each form, and stays for a type alone."""
    current = accelerator.current_device
    alone = _types_alone(accelerator)
    for before, forms in ((0, device_forms(accelerator, last)), (last, alone)):
        for form in forms:
            accelerator.set_device(before)
            accelerator.set_device(form)
            said = f"with device {before} the current one"
            require(
                current() == last,
                f"{said} set_device({form!r}) made {current()} the current device; expected {last}",
            )
            made = torch.empty(1, device=accelerator.device_type).device
            require(
                made.index in (None, last),
                f"{said}, then set_device({form!r}): a tensor is made on {made}; expected device {last}",
            )
            accelerator.set_device(before)
            with accelerator.device_guard(form):
                inside = current()
            require(
                inside == last,
                f"{said}, inside device_guard({form!r}) current_device() gave {inside}; expected {last}",
            )
            require(
                current() == before,
                f"{said}, after device_guard({form!r}) current_device() gave {current()}; expected {before}",
            )
    for form in device_forms(accelerator, 0):
        accelerator.set_device(last)
        accelerator.set_device(form)
        require(
            current() == 0,
            f"with device {last} the current one set_device({form!r}) made {current()} the current device; "
            "expected 0",
        )
    accelerator.set_device(0)
    if getattr(accelerator.Stream, "one_queue", False):
        return
    place = accelerator.device(last)
    for given in (
        last,
        place,
        str(place),
    ):  # the vendor's class itself: torch's forms, and no text "1"
        found = accelerator.Stream(device=given)
        require(
            found.device == place,
            f"with device 0 the current one Stream(device={given!r}) is a stream of {found.device}; expected "
            f"{place}",
        )
        require(
            current() == 0,
            f"Stream(device={given!r}) made {current()} the current device; expected 0",
        )
    with accelerator.device_guard(last):
        found = accelerator.Stream()
    require(
        found.device == place,
        f"with device {last} the current one Stream() is a stream of {found.device}; expected {place}",
    )


def forms_are_acted_on(accelerator: Accelerator, last: int) -> None:
    """Require that a member that waits, resets or restores does so on the device of each form."""
    alone = _types_alone(accelerator)
    for before, forms in ((0, device_forms(accelerator, last)), (last, [None, *alone])):
        for form in forms:
            accelerator.set_device(before)
            said = f"with device {before} the current one"
            _waits(accelerator, last, form, said)
            _resets(accelerator, last, form, said)
            _restores(accelerator, last, form, said)
            _limits(accelerator, last, form, said)
            now = accelerator.current_device()
            require(
                now == before,
                f"{said}, members given {form!r} made {now} the current device",
            )
    accelerator.set_device(0)


def _waits(accelerator: Accelerator, last: int, form: Any, said: str) -> None:
    if getattr(accelerator.Stream, "one_queue", False):
        return
    with accelerator.device_guard(last):
        side = accelerator.Stream(device=accelerator.device(last))
        source = torch.ones(_LARGE, dtype=torch.uint8, device=accelerator.device(last))
        target = torch.zeros_like(source)
        accelerator.synchronize()
        with accelerator.stream(side):
            for _ in range(20):
                target.copy_(source, non_blocking=True)
            done = side.record_event()
    accelerator.synchronize(form)
    over = done.query()
    side.synchronize()
    require(
        over is True,
        f"{said}, copies on a stream of device {last}, e recorded after them, synchronize({form!r}): "
        f"e.query() gave {over!r}; expected True",
    )


def _peaks(accelerator: Accelerator) -> list[tuple[int, int]]:
    """Return the peak and the present amount of the first device and the last one."""
    devices = (0, accelerator.device_count() - 1)
    return [
        (accelerator.max_memory_allocated(i), accelerator.memory_allocated(i))
        for i in devices
    ]


def _resets(accelerator: Accelerator, last: int, form: Any, said: str) -> None:
    accelerator.synchronize(0)
    accelerator.synchronize(last)
    for name in _RESETS:
        for index in (0, last):
            torch.empty(
                2 * _MEBIBYTE, dtype=torch.uint8, device=accelerator.device(index)
            )
        before = _peaks(accelerator)
        getattr(accelerator, name)(form)
        after = _peaks(accelerator)
        require(
            after[0] == before[0],
            f"{said}, {name}({form!r}) changed (max_memory_allocated(0), memory_allocated(0)) from "
            f"{before[0]} to {after[0]}; expected no change: it names device {last}",
        )
        peak, now = after[1]
        require(
            peak == now,
            f"{said}, after {name}({form!r}) max_memory_allocated({last}) is {peak}, and "
            f"memory_allocated({last}) {now}; expected the same",
        )
    key, name = "allocated_bytes.all.allocated", "reset_accumulated_memory_stats"
    if key not in accelerator.memory_stats(last):
        return
    here = accelerator.memory_stats(0)[key]
    getattr(accelerator, name)(form)
    found = accelerator.memory_stats(0)[key], accelerator.memory_stats(last)[key]
    require(
        found == (here, 0),
        f"{said}, after {name}({form!r}) memory_stats(i)[{key!r}] of the devices 0 and {last} is {found}; "
        f"expected {(here, 0)}",
    )


def _restores(accelerator: Accelerator, last: int, form: Any, said: str) -> None:
    def drawn(index: int) -> list[float]:
        return torch.rand(8, device=accelerator.device(index)).tolist()

    def states() -> list[torch.Tensor]:
        return [accelerator.get_rng_state(index) for index in (0, last)]

    accelerator.default_generator(0).manual_seed(61)
    accelerator.default_generator(last).manual_seed(62)
    there = accelerator.get_rng_state(last)
    drawn(0)
    first = drawn(last)
    here = accelerator.get_rng_state(0)
    accelerator.set_rng_state(there, form)
    changed = not torch.equal(accelerator.get_rng_state(0), here)
    require(
        not changed,
        f"{said}, set_rng_state(state, {form!r}) changed the generator of device 0",
    )
    again = drawn(last)
    require(
        again == first,
        f"{said}, after set_rng_state(state, {form!r}) device {last} draws {again[:2]}…; expected "
        f"{first[:2]}…, as from that state before",
    )
    before = states()
    with accelerator.fork_rng(devices=[form]):
        drawn(0)
        drawn(last)
    after = states()
    restored = [
        torch.equal(one, other) for one, other in zip(before, after, strict=True)
    ]
    require(
        restored == [False, True],
        f"{said}, fork_rng(devices=[{form!r}]) restored the devices 0 and {last}: {restored}; expected "
        "[False, True]",
    )


def _limits(accelerator: Accelerator, last: int, form: Any, said: str) -> None:
    accelerator.empty_cache()
    limit: Callable[[float], Any] = partial(
        accelerator.set_per_process_memory_fraction, device_index=form
    )
    size = accelerator.total_memory(last) // 8
    block = partial(
        torch.empty, size, dtype=torch.uint8, device=accelerator.device(last)
    )
    try:
        limit(0.05)
    except UnsupportedError:
        return
    try:
        what = f"{said}, set_per_process_memory_fraction(0.05, {form!r}), an eighth of device {last}'s memory"
        require_raises(block, torch.OutOfMemoryError, what)
    finally:
        for index in (0, last):
            with contextlib.suppress(UnsupportedError):
                accelerator.set_per_process_memory_fraction(1.0, index)
    torch.empty(_MEBIBYTE, dtype=torch.uint8, device=accelerator.device(last))
