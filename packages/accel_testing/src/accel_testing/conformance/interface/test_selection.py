"""Checks of device selection, and of indices of missing devices."""

from __future__ import annotations

import threading
from functools import partial

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import (
    BrokenPromise,
    require,
    require_raises,
    skip_unsupported,
)
from accel_testing.conformance.interface.device_forms import (
    device_forms,
    is_same_answer,
    members_with_device_index,
    require_actions_on_named_device,
    require_answers_on_named_device,
    require_selection_by_any_form,
)

__all__ = ["TestSelection"]

_OUT_OF_RANGE = 4096
#: Members that query a device or wait for it, and that must not select the device.
_QUERIES = (
    "total_memory", "mem_get_info", "device_properties", "get_rng_state", "memory_allocated", "memory_stats",
    "synchronize", "current_stream", "default_stream",
)  # fmt: skip
#: Members that return a property of a device.
_DEVICE_PROPERTIES = (
    "device_properties", "device_uuid", "get_device_capability", "total_memory", "available_memory",
    "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved", "memory_cached",
    "current_stream", "default_stream",
)  # fmt: skip


#: Members whose results for several forms of a device are compared.
_SAME_FOR_EACH_FORM = (
    "total_memory", "get_rng_state", "device_properties", "current_stream", "default_stream",
)  # fmt: skip
_MEMORY_IN_USE = ("memory_allocated", "max_memory_allocated")


class TestSelection(BackendTestBase):
    """Members accept a device as an `int`, a `torch.device`, a name, or None for the current device."""

    def test_every_device_can_be_selected(self, accelerator: Accelerator) -> None:
        """`set_device(i)` selects the device for `current_device`, the current name and new tensors."""
        for index in reversed(range(accelerator.device_count())):
            accelerator.set_device(index)
            current = accelerator.current_device()
            require(
                current == index,
                f"after set_device({index}) current_device() returned {current}",
            )
            name = accelerator.current_device_name()
            device_type = accelerator.device_type
            is_right = name in (
                f"{device_type}:{index}",
                accelerator.device_name(index),
            )
            require(
                is_right,
                f"after set_device({index}) current_device_name() returned {name!r}",
            )
            device = torch.ones(1, device=accelerator.device_type).device
            require(
                device.index in (None, index),
                f"after set_device({index}), a tensor is created on {device}",
            )

    def test_out_of_range_is_refused(self, accelerator: Accelerator) -> None:
        """An index beyond the last device raises a `ValueError`, and changes nothing."""
        _require_devices(accelerator)
        for before in dict.fromkeys((0, accelerator.device_count() - 1)):
            accelerator.set_device(before)
            for index in (accelerator.device_count(), _OUT_OF_RANGE):
                require_raises(
                    partial(accelerator.set_device, index),
                    ValueError,
                    f"set_device({index})",
                )
                after = accelerator.current_device()
                require(
                    after == before,
                    f"a rejected set_device({index}) changed the device from {before} to {after}",
                )

    def test_negative_is_refused(self, accelerator: Accelerator) -> None:
        """The index -1 is rejected: an unset rank variable must not select the last or the first device."""
        for name in members_with_device_index():
            require_raises(
                partial(getattr(accelerator, name), -1), ValueError, f"{name}(-1)"
            )
        has_names_with_index = accelerator.device_name(0) != accelerator.device_name()
        if has_names_with_index:
            require_raises(
                lambda: accelerator.device_name(-1), ValueError, "device_name(-1)"
            )

    def test_another_type_is_refused(self, accelerator: Accelerator) -> None:
        """A device of another type raises a `ValueError`; other values a `ValueError` or `TypeError`."""
        other = "cuda:0" if accelerator.device_type != "cuda" else "xpu:0"
        for name in (*members_with_device_index(), "device", "device_name"):
            member = getattr(accelerator, name)
            for value in (other, torch.device(other), "gpu one"):
                require_raises(partial(member, value), ValueError, f"{name}({value!r})")
            for wrong in (1.5, [0]):
                require_raises(partial(member, wrong), TypeError, f"{name}({wrong!r})")

    def test_members_refuse_what_is_out_of_range(
        self, accelerator: Accelerator
    ) -> None:
        """Every member that takes an index raises a `ValueError` for the index of a missing device."""
        _require_devices(accelerator)
        for name in members_with_device_index():
            member = partial(getattr(accelerator, name), _OUT_OF_RANGE)
            require_raises(member, ValueError, f"{name}({_OUT_OF_RANGE})")

    def test_members_take_a_device_in_any_form(self, accelerator: Accelerator) -> None:
        """An index, its text, a `torch.device`, a name and None name the same device for every member."""
        accelerator.set_device(0)
        # A generator that was never seeded may not have a seed.
        accelerator.manual_seed_all(1)
        in_use = torch.ones(1024, device=accelerator.device(0))
        for name in (*members_with_device_index(), "device", "device_name"):
            self._require_any_form(accelerator, name)
        del in_use
        last = accelerator.device_count() - 1
        for name in _QUERIES:
            getattr(accelerator, name)(last)
            current = accelerator.current_device()
            require(
                current == 0, f"{name}({last}) changed the current device to {current}"
            )
        if accelerator.device(last) != accelerator.device(0):
            require_answers_on_named_device(accelerator, last)
            require_selection_by_any_form(accelerator, last)
            require_actions_on_named_device(accelerator, last)

    def _require_any_form(self, accelerator: Accelerator, name: str) -> None:
        """Require that a member accepts the first device in every form, and returns equal results."""
        forms = device_forms(accelerator, 0)
        if name != "set_device":
            forms.append(None)
        answers = []
        for form in forms:
            try:
                answers.append(getattr(accelerator, name)(form))
            except Exception as error:
                raise BrokenPromise(
                    f"{name}({form!r}) raised {type(error).__name__}: {error}"
                ) from error
        is_compared = name in _SAME_FOR_EACH_FORM
        # The CPU's memory is the process's memory, which changes between calls.
        if accelerator.is_accelerator() and name in _MEMORY_IN_USE:
            is_compared = True
        if not is_compared:
            return
        for form, answer in zip(forms, answers, strict=True):
            require(
                is_same_answer(answer, answers[0]),
                f"{name}({form!r}) returned {answer!r}, but {name}(0) returned {answers[0]!r}",
            )

    def test_members_tell_of_the_device_they_are_given(
        self, accelerator: Accelerator
    ) -> None:
        """A member with index i returns the same as without an index while device i is current."""
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            skip_unsupported("there is one device")
        accelerator.set_device(0)
        in_use = torch.ones(1024, device=accelerator.device(last))
        # The devices' generators have different states, and their current streams differ.
        torch.rand(3, device=accelerator.device(last))
        stream = accelerator.Stream(device=accelerator.device(last))
        with accelerator.stream(stream), accelerator.device_guard(0):
            for name in (*_DEVICE_PROPERTIES, "get_rng_state"):
                member = getattr(accelerator, name)
                answer = member(last)
                with accelerator.device_guard(last):
                    answer_there = member()
                require(
                    is_same_answer(answer, answer_there),
                    f"{name}({last}) returned {answer!r}; on device {last} without an index {answer_there!r}",
                )
        del in_use

    def test_guard_restores(self, accelerator: Accelerator) -> None:
        """`device_guard` selects a device in its block and restores the old device, even after an error."""
        last = accelerator.device_count() - 1
        before = accelerator.current_device()
        with accelerator.device_guard(last):
            inside = accelerator.current_device()
        require(
            inside == last,
            f"inside device_guard({last}) current_device() returned {inside}",
        )
        require(
            accelerator.current_device() == before,
            f"device_guard({last}) did not restore the device",
        )
        try:
            with accelerator.device_guard(last):
                raise KeyError
        except KeyError:
            pass
        require(
            accelerator.current_device() == before,
            "after an error device_guard did not restore the device",
        )
        with accelerator.device_guard(last), accelerator.device_guard(None):
            require(
                accelerator.current_device() == last,
                "device_guard(None) selected a different device",
            )

    def test_threads_select_for_themselves(self, accelerator: Accelerator) -> None:
        """Each thread has its own current device, so that a loader's thread does not affect training."""
        if accelerator.device_count() < 2:
            skip_unsupported("there is one device")
        accelerator.set_device(0)
        thread = threading.Thread(target=accelerator.set_device, args=(1,))
        thread.start()
        thread.join()
        current = accelerator.current_device()
        require(
            current == 0,
            f"set_device(1) in another thread changed this thread's current device to {current}",
        )


def _require_devices(accelerator: Accelerator) -> None:
    """Skip the check on the CPU, which is the same device for every index."""
    if not accelerator.is_accelerator():
        skip_unsupported("the CPU is the same device for every index")
