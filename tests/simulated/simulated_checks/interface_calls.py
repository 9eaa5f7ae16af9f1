"""The members that take a few lines to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_simulated import device
from simulated_checks import Checks
from simulated_checks.interface_table import is_int

CALLS = Checks()


@CALLS.add
def is_initialized(a: Any) -> bool:
    torch.ones(1, device=a.backend.device_type)
    return a.is_initialized() is True


@CALLS.add
def set_device(a: Any) -> bool:
    last = a.device_count() - 1
    a.set_device(last)
    selected = a.current_device() == last == torch.ones(1, device=a.backend.device_type).device.index
    a.set_device(0)
    try:
        a.set_device(99)
    except ValueError:
        return selected and a.current_device() == 0
    return False


@CALLS.add
def device_guard(a: Any) -> bool:
    last = a.device_count() - 1
    with a.device_guard(last):
        inside = a.current_device()
    with a.device_guard(None):
        return inside == last and a.current_device() == 0


@CALLS.add
def device_properties(a: Any) -> bool:
    found = a.device_properties(0)
    return isinstance(found.name, str) and found.total_memory == device.memory


# Random numbers


def draw(a: Any) -> list[float]:
    return torch.rand(4, device=a.backend.device_type).tolist()


@CALLS.add
def manual_seed(a: Any) -> bool:
    a.manual_seed(3)
    first = draw(a)
    a.manual_seed(3)
    return draw(a) == first != draw(a)


@CALLS.add
def manual_seed_all(a: Any) -> bool:
    a.manual_seed_all(4)
    first = draw(a)
    a.manual_seed_all(4)
    return draw(a) == first


@CALLS.add
def initial_seed(a: Any) -> bool:
    a.manual_seed(5)
    return a.initial_seed() == 5 and is_int(a.initial_seed())


@CALLS.add
def get_rng_state(a: Any) -> bool:
    states = [a.get_rng_state(), *(a.get_rng_state(index) for index in range(a.device_count()))]
    return all(state.dtype == torch.uint8 and state.device.type == "cpu" for state in states)


@CALLS.add
def set_rng_state(a: Any) -> bool:
    state = a.get_rng_state()
    first = draw(a)
    a.set_rng_state(state)
    again = draw(a)
    a.set_rng_state(state, 0)
    return first == again == draw(a)


@CALLS.add
def default_generator(a: Any) -> bool:
    generator = a.default_generator(0)
    generator.manual_seed(6)
    first = draw(a)
    a.default_generator(None).manual_seed(6)
    return isinstance(generator, torch.Generator) and draw(a) == first


@CALLS.add
def fork_rng(a: Any) -> bool:
    with a.fork_rng():
        first = draw(a)
    return draw(a) == first


# Streams


@CALLS.add
def Stream(a: Any) -> bool:
    made = a.Stream()
    made.wait_stream(a.current_stream())
    made.synchronize()
    return made.query() is True


@CALLS.add
def Event(a: Any) -> bool:
    start, end = a.Event(enable_timing=True), a.Event(enable_timing=True)
    start.record()
    device.sleep(30)
    end.record()
    end.synchronize()
    return end.query() is True and 20 < start.elapsed_time(end) < 5000


@CALLS.add
def stream(a: Any) -> bool:
    before, side = a.current_stream(), a.Stream()
    with a.stream(None), a.stream(side):
        inside = a.current_stream()
    return (a.backend.device_type == "mps" or inside == side) and a.current_stream() == before


@CALLS.add
def set_stream(a: Any) -> bool:
    before, side = a.current_stream(), a.Stream()
    a.set_stream(side)
    inside = a.current_stream()
    a.set_stream(before)
    return (a.backend.device_type == "mps" or inside == side) and a.current_stream() == before


@CALLS.add
def current_stream(a: Any) -> bool:
    return bool(a.current_stream() == a.current_stream(0))


@CALLS.add
def default_stream(a: Any) -> bool:
    return bool(a.default_stream() == a.default_stream(0) == a.current_stream())


# Memory: a megabyte comes and goes

MEGABYTE = 1 << 20


def block(a: Any) -> torch.Tensor:
    return torch.empty(MEGABYTE, dtype=torch.uint8, device=a.backend.device_type)


@CALLS.add
def memory_allocated(a: Any) -> bool:
    before, kept = a.memory_allocated(), block(a)
    return a.memory_allocated(0) - before == kept.numel() and is_int(before)


@CALLS.add
def max_memory_allocated(a: Any) -> bool:
    a.reset_peak_memory_stats()
    before = a.memory_allocated()
    block(a)
    return a.max_memory_allocated() == a.max_memory_allocated(0) == before + MEGABYTE


def resets(a: Any, reset: Callable[..., Any]) -> bool:
    block(a)
    high = a.max_memory_allocated()
    reset()
    reset(0)
    return a.max_memory_allocated() == a.memory_allocated() == high - MEGABYTE


CALLS["reset_peak_memory_stats"] = lambda a: resets(a, a.reset_peak_memory_stats)
CALLS["reset_max_memory_allocated"] = lambda a: resets(a, a.reset_max_memory_allocated)
CALLS["reset_max_memory_cached"] = lambda a: resets(a, a.reset_max_memory_cached)
for _name in ("memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached"):
    CALLS[_name] = lambda a, name=_name: (
        is_int(getattr(a, name)()) and getattr(a, name)(0) >= a.memory_allocated() and block(a) is not None
    )


@CALLS.add
def memory_stats(a: Any) -> bool:
    kept = block(a)
    stats = a.memory_stats(0)
    same = stats["allocated_bytes.all.current"] == a.memory_allocated() >= kept.numel()
    return same and "reserved_bytes.all.current" in a.memory_stats()


@CALLS.add
def reset_accumulated_memory_stats(a: Any) -> bool:
    key = "allocated_bytes.all.allocated"
    block(a)
    before = a.memory_stats(0)
    a.reset_accumulated_memory_stats()
    a.reset_accumulated_memory_stats(0)
    return key not in before or a.memory_stats(0)[key] == 0 < before[key]


@CALLS.add
def memory_summary(a: Any) -> bool:
    text = a.memory_summary(0)
    return f"Memory of {a.device_name(0)}" in text and "allocated memory" in text


@CALLS.add
def get_device_capability(a: Any) -> bool:
    found = a.get_device_capability(0)["supported_dtypes"]
    return {torch.float32, torch.int64, torch.bool} <= found


@CALLS.add
def mem_get_info(a: Any) -> bool:
    free, total = a.mem_get_info()
    return is_int(free) and is_int(total) and 0 < free <= total == device.memory


@CALLS.add
def available_memory(a: Any) -> bool:
    return is_int(a.available_memory()) and a.available_memory(0) == a.mem_get_info(0)[0]


@CALLS.add
def set_per_process_memory_fraction(a: Any) -> bool:
    a.empty_cache()
    a.set_per_process_memory_fraction(0.25)
    try:
        torch.empty(device.memory // 2, dtype=torch.uint8, device=a.backend.device_type)
    except torch.OutOfMemoryError:
        return True
    finally:
        a.set_per_process_memory_fraction(1.0, 0)
    return False


@CALLS.add
def pin_memory(a: Any) -> bool:
    plain = torch.arange(6.0).view(2, 3)
    pinned, template = a.pin_memory(plain), a.pin_memory(plain, make_copy=False, match_shape=False)
    return pinned.is_pinned() and torch.equal(pinned, plain) and tuple(template.shape) == (6,)


@CALLS.add
def is_pinned(a: Any) -> bool:
    return a.is_pinned(a.pin_memory(torch.ones(2))) is True and a.is_pinned(torch.ones(2)) is False


@CALLS.add
def pin_empty(a: Any) -> bool:
    return a.pin_empty(2, 3, dtype=torch.int32).is_pinned()


@CALLS.add
def pin_empty_like(a: Any) -> bool:
    made = a.pin_empty_like(torch.ones(2, 3))
    return made.is_pinned() and made.shape == (2, 3)


# The rest


@CALLS.add
def autocast(a: Any) -> bool:
    ones = torch.ones(2, 2, device=a.backend.device_type)
    with a.autocast(torch.bfloat16):
        inside = (ones @ ones).dtype
    with a.autocast(torch.bfloat16, enabled=False):
        return inside is torch.bfloat16 and (ones @ ones).dtype is torch.float32


@CALLS.add
def grad_scaler(a: Any) -> bool:
    """A step in float16 whose gradients are scaled and come out right; off in any other type."""
    weight = torch.nn.Parameter(torch.ones(2, device=a.backend.device_type))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), a.grad_scaler(torch.float16, init_scale=8.0)
    scaler.scale(weight.sum()).backward()
    scaled = weight.grad.tolist()
    scaler.step(optimizer)
    scaler.update()
    on = a.grad_scaler().is_enabled()
    return (
        scaled == [8.0, 8.0]
        and weight.tolist() == [0.5, 0.5]
        and a.grad_scaler(torch.bfloat16).is_enabled() is False
        and on is (a.training_dtype() is torch.float16)
    )


def captured(a: Any) -> list[float]:
    x = torch.zeros(1, device=a.backend.device_type)
    graph = a.create_graph()
    a.synchronize()
    with a.capture_to_graph(graph):
        x.add_(1)
        inside = a.is_current_stream_capturing()
    a.synchronize()
    values = [float(inside), x.item()]
    a.replay_graph(graph)
    a.synchronize()
    return [*values, x.item()]


CALLS["supports_graphs"] = lambda a: a.supports_graphs() is True
CALLS["create_graph"] = lambda a: a.create_graph() is not None
CALLS["capture_to_graph"] = lambda a: captured(a)[1:2] == [0.0]
CALLS["replay_graph"] = lambda a: captured(a)[2] == 1.0
CALLS["is_current_stream_capturing"] = lambda a: (
    a.is_current_stream_capturing() is False and captured(a)[0] == 1.0
)


@CALLS.add
def set_compile_backend(a: Any) -> bool:
    a.set_compile_backend("eager")
    chosen = a.get_compile_backend()
    a.set_compile_backend("inductor")
    try:
        a.set_compile_backend("no such backend")
    except ValueError:
        return chosen == "eager"
    return False


@CALLS.add
def range_push(a: Any) -> None:
    a.range_push("step", domain="training", category="test")
    a.range_pop()


@CALLS.add
def range_pop(a: Any) -> None:
    a.range_pop(domain="training")


def in_range(a: Any) -> None:
    with a.range("step"):
        pass


CALLS["range"] = in_range


@CALLS.add
def set_visible_devices_envs(a: Any) -> bool:
    environment: dict[str, str] = {}
    a.set_visible_devices_envs(environment, [0, 1])
    return list(environment) == a.visible_devices_envs()[:1]
