"""Selecting a device, and indices that no device has."""

from __future__ import annotations

import inspect
import threading
from functools import partial

import torch

from accel_core.accelerators.interface import Accelerator
from accel_core.conformance.claims import not_claimed, refused, require
from accel_core.conformance.subject import Subject

__all__ = ["TestSelection"]

_OUT_OF_RANGE = 4096
#: Members that tell of a device, or wait for it.
_ASKING = (
    "total_memory", "mem_get_info", "device_properties", "get_rng_state", "memory_allocated", "memory_stats",
    "synchronize", "current_stream", "default_stream",
)  # fmt: skip


class TestSelection(Subject):
    """A `device_index` is an `int`, a device of torch's, its name, or None for the current one."""

    def test_every_device_can_be_selected(self, accelerator: Accelerator) -> None:
        """`set_device(i)` selects: `current_device`, its name and new tensors follow."""
        for index in reversed(range(accelerator.device_count())):
            accelerator.set_device(index)
            current = accelerator.current_device()
            require(current == index, f"after set_device({index}) current_device() gave {current}")
            made = torch.ones(1, device=accelerator.device_type).device
            require(made.index in (None, index), f"after set_device({index}) a tensor is made on {made}")

    def test_out_of_range_is_refused(self, accelerator: Accelerator) -> None:
        """An index beyond the last device is a `ValueError` that changes nothing."""
        _require_devices(accelerator)
        before = accelerator.current_device()
        for index in (accelerator.device_count(), _OUT_OF_RANGE):
            refused(partial(accelerator.set_device, index), ValueError, f"set_device({index})")
        require(accelerator.current_device() == before, "a refused set_device changed the device")

    def test_negative_is_refused(self, accelerator: Accelerator) -> None:
        """-1 is no index: an unset rank variable must not select the last device, or the first."""
        refused(lambda: accelerator.set_device(-1), ValueError, "set_device(-1)")
        if accelerator.device_name(0) != accelerator.device_name():  # else it is the one name of all
            refused(lambda: accelerator.device_name(-1), ValueError, "device_name(-1)")

    def test_another_type_is_refused(self, accelerator: Accelerator) -> None:
        """A device of another type is a `ValueError`: its number would select a device of this one."""
        other = "cuda:0" if accelerator.device_type != "cuda" else "xpu:0"
        refused(lambda: accelerator.set_device(other), ValueError, f"set_device({other!r})")
        refused(lambda: accelerator.synchronize(other), ValueError, f"synchronize({other!r})")

    def test_members_refuse_what_is_out_of_range(self, accelerator: Accelerator) -> None:
        """Every member that takes an index refuses one that no device has, with a `ValueError`."""
        _require_devices(accelerator)
        for name in _indexed():
            member = partial(getattr(accelerator, name), _OUT_OF_RANGE)
            refused(member, ValueError, f"{name}({_OUT_OF_RANGE})")

    def test_members_take_a_device_in_any_form(self, accelerator: Accelerator) -> None:
        """An index, a `torch.device`, its name and None are one to every member, and asking selects none."""
        accelerator.set_device(0)
        forms = (None, 0, accelerator.device(0), accelerator.device_name(0))
        for name in ("total_memory", "device_name", "get_rng_state", "memory_allocated", "synchronize"):
            for form in forms:
                try:
                    getattr(accelerator, name)(form)
                except Exception as error:
                    require(False, f"{name}({form!r}) raised {type(error).__name__}: {error}")
        last = accelerator.device_count() - 1
        for name in _ASKING:
            getattr(accelerator, name)(last)
            current = accelerator.current_device()
            require(current == 0, f"{name}({last}) made {current} the current device")

    def test_guard_restores(self, accelerator: Accelerator) -> None:
        """`device_guard` selects inside its block and restores after it, an error or not; None is a no-op."""
        last = accelerator.device_count() - 1
        before = accelerator.current_device()
        with accelerator.device_guard(last):
            inside = accelerator.current_device()
        require(inside == last, f"inside device_guard({last}) current_device() gave {inside}")
        require(accelerator.current_device() == before, f"device_guard({last}) did not restore the device")
        try:
            with accelerator.device_guard(last):
                raise KeyError
        except KeyError:
            pass
        require(
            accelerator.current_device() == before, "after an error device_guard did not restore the device"
        )
        with accelerator.device_guard(None):
            require(accelerator.current_device() == before, "device_guard(None) selected another device")

    def test_threads_select_for_themselves(self, accelerator: Accelerator) -> None:
        """The current device is a thread's own: a loader's thread must not move the training's tensors."""
        if accelerator.device_count() < 2:
            not_claimed("there is one device")
        accelerator.set_device(0)
        thread = threading.Thread(target=accelerator.set_device, args=(1,))
        thread.start()
        thread.join()
        current = accelerator.current_device()
        require(current == 0, f"another thread's set_device(1) made this one's current device {current}")


def _require_devices(accelerator: Accelerator) -> None:
    if not accelerator.is_accelerator():
        not_claimed("the processor is one device under any number")


def _indexed() -> list[str]:
    """The members that take a `device_index` and nothing else that has no default."""
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
