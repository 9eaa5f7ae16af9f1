"""What a broken member does in the place of the one that is whole."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import torch

from accel_simulated import device


def whole(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """What the member gives where it is not broken."""
    return getattr(super(type(self), self), name)(*args, **kwargs)


@contextlib.contextmanager
def forgets_to_restore(self: Any, device_index: Any) -> Any:
    if device_index is not None:
        self.set_device(device_index)
    yield


@contextlib.contextmanager
def leaves_on_error(self: Any, device_index: Any) -> Any:
    before = self.current_device()
    if device_index is not None:
        self.set_device(device_index)
    yield
    self.set_device(before)


@contextlib.contextmanager
def leaves_stream(self: Any, stream: Any) -> Any:
    if stream is not None:
        self.set_stream(stream)
    yield


def reads_any_index(name: str) -> Any:
    def member(self: Any, device_index: Any = None) -> Any:
        index = device_index if isinstance(device_index, int) and device_index > 99 else None
        return whole(self, name, None if index else device_index)

    return member


def reads_names_as_last(self: Any, device_index: Any = None) -> int:
    """Bytes of the last device for any name."""
    index = self.device_count() - 1 if isinstance(device_index, str) else device_index
    return int(whole(self, "memory_allocated", index))


def cuts_numbers(self: Any, device_index: Any = None) -> int:
    index = int(device_index) if isinstance(device_index, float) else device_index
    return int(whole(self, "total_memory", index))


def refuses_text(self: Any, device_index: Any) -> None:
    if device_index == "0":
        raise ValueError(device_index)
    whole(self, "set_device", device_index)


@contextlib.contextmanager
def guards_first(self: Any, device_index: Any) -> Any:
    with super(type(self), self).device_guard(device_index or 0):
        yield


class TakesAnySize:
    """A tensor type that takes a single number for a size, as torch's own does."""

    def __init__(self, accelerator: Any) -> None:
        self.kind = super(type(accelerator), accelerator).FloatTensor

    def __call__(self, *data: Any, **options: Any) -> Any:
        return torch.empty(*data, device="acme") if data == (5,) else self.kind(*data, **options)

    def __instancecheck__(self, tensor: object) -> bool:
        return isinstance(tensor, self.kind)


class TakesAnyTensor(TakesAnySize):
    """A tensor type that any tensor is of."""

    def __instancecheck__(self, tensor: object) -> bool:
        return isinstance(tensor, torch.Tensor)


class BusyStream(torch.Stream):
    """Has other work before each event: kernels of the simulated device have ended when they return."""

    def record_event(self, event: Any = None) -> Any:
        device.sleep(1000, self)
        return super().record_event(event)


class EndlessStream(torch.Stream):
    """Says that there is work left, whoever waited for it."""

    def query(self) -> bool:
        return False


class LateEvent:
    """Seconds in the place of milliseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("enable_timing", None)
        self.event = torch.Event("acme", enable_timing=True)

    def elapsed_time(self, other: LateEvent) -> float:
        return self.event.elapsed_time(other.event) / 1e3

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, name)


class WrongScaler:
    """Steps without taking the scale back."""

    def __init__(self, **options: Any) -> None:
        self.scale_by = options.get("init_scale", 2.0**16)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.scale_by

    def step(self, optimizer: Any) -> None:
        optimizer.step()

    def update(self) -> None:
        pass

    def is_enabled(self) -> bool:
        return True


def writes_our_environment(self: Any, environ: Any, ids: Any) -> None:
    os.environ["ACME_VISIBLE"] = "0"


def seeds_host(self: Any, seed: int) -> None:
    torch.random.default_generator.manual_seed(seed)
    whole(self, "manual_seed", seed)


def seeds_all(self: Any, seed: int) -> None:
    self.manual_seed_all(seed)


def restores_by_index(self: Any, new_state: Any, device_index: Any = None) -> None:
    if device_index is not None:
        whole(self, "set_rng_state", new_state, device_index)


def copies_the_current(self: Any, device_index: Any) -> Any:
    found = whole(self, "default_generator", device_index)
    return found.clone_state() if device_index is None else found


@contextlib.contextmanager
def stays_on_its_device(self: Any, stream: Any) -> Any:
    before = self.current_device()
    with whole(self, "stream", stream):
        self.set_device(before)
        yield


@contextlib.contextmanager
def wants_a_graph(self: Any, graph: Any, pool: Any = None, stream: Any = None) -> Any:
    if graph is None:
        raise TypeError("expected a graph")
    with whole(self, "capture_to_graph", graph, pool, stream):
        yield


def selects_what_it_tells_of(self: Any, device_index: Any = None) -> Any:
    if device_index is not None:
        self.set_device(device_index)
    return whole(self, "memory_stats", device_index)


def locks_once(self: Any, address: int, num_bytes: int) -> bool:
    """True the first time, as where nothing is ever released."""
    locked, self._locked = getattr(self, "_locked", False), True
    return not locked


def never_called(self: Any, callback: Any) -> None:
    pass


def narrower(self: Any, message: str) -> None:
    """Takes no domain."""


def needs_more(self: Any, seed: int, device: int) -> None:
    """Wants an argument that nobody gives."""


def loses_default(self: Any, device_index: Any) -> int:
    return int(whole(self, "memory_allocated", device_index))


def other_order(self: Any, callback: Any = None, *, make_copy: bool = True, match_shape: bool = True) -> Any:
    return whole(self, "pin_memory", callback, make_copy, match_shape)


def zeroed(self: Any, tensor: Any, make_copy: bool = True, match_shape: bool = True) -> Any:
    return whole(self, "pin_memory", tensor, make_copy, match_shape).zero_()


def hangs_after_fork(self: Any, device_index: Any = None) -> str:
    if os.getpid() != _HERE:
        time.sleep(600)
    return str(whole(self, "device_name", device_index))


def dies_after_fork(self: Any) -> int:
    if os.getpid() != _HERE:
        os._exit(9)
    return int(whole(self, "device_count"))


_HERE = os.getpid()


def with_values(record: Any, **values: Any) -> Any:
    import dataclasses

    return dataclasses.replace(record, **values)
