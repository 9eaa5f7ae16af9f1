"""What a broken member does in the place of the one that is whole."""

import contextlib
import os
import time

import torch

from accel_simulated import device


def whole(self, name, *args, **kwargs):
    """What the member gives where it is not broken."""
    return getattr(super(type(self), self), name)(*args, **kwargs)


@contextlib.contextmanager
def forgets_to_restore(self, device_index):
    if device_index is not None:
        self.set_device(device_index)
    yield


def reads_any_index(name):
    def member(self, device_index=None):
        index = (
            device_index
            if isinstance(device_index, int) and device_index > 99
            else None
        )
        return whole(self, name, None if index else device_index)

    return member


def reads_names_as_last(self, device_index=None):
    """Bytes of the last device for any name."""
    index = self.device_count() - 1 if isinstance(device_index, str) else device_index
    return int(whole(self, "memory_allocated", index))


def cuts_numbers(self, device_index=None):
    index = int(device_index) if isinstance(device_index, float) else device_index
    return int(whole(self, "total_memory", index))


def refuses_text(self, device_index):
    if device_index == "0":
        raise ValueError(device_index)
    whole(self, "set_device", device_index)


@contextlib.contextmanager
def guards_first(self, device_index):
    with super(type(self), self).device_guard(device_index or 0):
        yield


class TakesAnySize:
    """A tensor type that takes a single number for a size, as torch's own does."""

    def __init__(self, accelerator):
        self.kind = super(type(accelerator), accelerator).FloatTensor

    def __call__(self, *data, **options):
        return (
            torch.empty(*data, device="acme")
            if data == (5,)
            else self.kind(*data, **options)
        )

    def __instancecheck__(self, tensor):
        return isinstance(tensor, self.kind)


class TakesAnyTensor(TakesAnySize):
    """A tensor type that any tensor is of."""

    def __instancecheck__(self, tensor):
        return isinstance(tensor, torch.Tensor)


class BusyStream(torch.Stream):
    """Has other work before each event: kernels of the simulated device have ended when they return."""

    def record_event(self, event=None):
        device.sleep(1000, self)
        return super().record_event(event)


class EndlessStream(torch.Stream):
    """Says that there is work left, whoever waited for it."""

    def query(self):
        return False


class LateEvent:
    """Seconds in the place of milliseconds."""

    def __init__(self, *args, **kwargs):
        kwargs.pop("enable_timing", None)
        self.event = torch.Event("acme", enable_timing=True)

    def elapsed_time(self, other):
        return self.event.elapsed_time(other.event) / 1e3

    def __getattr__(self, name):
        return getattr(self.event, name)


class WrongScaler:
    """Steps without taking the scale back."""

    def __init__(self, **options):
        self.scale_by = options.get("init_scale", 2.0**16)

    def scale(self, loss):
        return loss * self.scale_by

    def step(self, optimizer):
        optimizer.step()

    def update(self):
        pass

    def is_enabled(self):
        return True


def writes_our_environment(self, environ, ids):
    os.environ["ACME_VISIBLE"] = "0"


def seeds_host(self, seed):
    torch.random.default_generator.manual_seed(seed)
    whole(self, "manual_seed", seed)


def seeds_all(self, seed):
    self.manual_seed_all(seed)


def restores_by_index(self, new_state, device_index=None):
    if device_index is not None:
        whole(self, "set_rng_state", new_state, device_index)


def copies_the_current(self, device_index):
    found = whole(self, "default_generator", device_index)
    return found.clone_state() if device_index is None else found


@contextlib.contextmanager
def stays_on_its_device(self, stream):
    before = self.current_device()
    with whole(self, "stream", stream):
        self.set_device(before)
        yield


@contextlib.contextmanager
def wants_a_graph(self, graph, pool=None, stream=None):
    if graph is None:
        raise TypeError("expected a graph")
    with whole(self, "capture_to_graph", graph, pool, stream):
        yield


def selects_what_it_tells_of(self, device_index=None):
    if device_index is not None:
        self.set_device(device_index)
    return whole(self, "memory_stats", device_index)


def locks_once(self, address, num_bytes):
    """True the first time, as where nothing is ever released."""
    locked, self._locked = getattr(self, "_locked", False), True
    return not locked


def never_called(self, callback):
    pass


def narrower(self, message):
    """Takes no domain."""


def needs_more(self, seed, device):
    """Wants an argument that nobody gives."""


def other_order(self, callback=None, *, make_copy=True, match_shape=True):
    return whole(self, "pin_memory", callback, make_copy, match_shape)


def zeroed(self, tensor, make_copy=True, match_shape=True):
    return whole(self, "pin_memory", tensor, make_copy, match_shape).zero_()


def hangs_after_fork(self, device_index=None):
    if os.getpid() != _HERE:
        time.sleep(600)
    return str(whole(self, "device_name", device_index))


def dies_after_fork(self):
    if os.getpid() != _HERE:
        os._exit(9)
    return int(whole(self, "device_count"))


_HERE = os.getpid()


def with_values(record, **values):
    import dataclasses

    return dataclasses.replace(record, **values)
