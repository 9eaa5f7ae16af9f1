"""Members that are said to do what a function of `torch.accelerator` does: both are asked, on one device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

#: What the page says.
FACTS = Path(__file__).parents[5] / "tools" / "torch_accelerator.json"


def block(a: Any) -> torch.Tensor:
    """A mebibyte on the device."""
    return torch.empty(1 << 20, dtype=torch.uint8, device=a.backend.device_type)


def _answer(name: str, theirs: str = "", *arguments: Any) -> Callable[[Any, Any], bool]:
    return lambda a, t: getattr(a, name)(*arguments) == getattr(t, theirs or name)(*arguments)


def _peak(a: Any, reset: Callable[[], None]) -> bool:
    block(a)
    reset()
    return bool(a.max_memory_allocated() == a.memory_allocated())


def _accumulated(a: Any, t: Any) -> bool:
    block(a)
    a.reset_accumulated_memory_stats()
    ours = t.memory_stats().get("allocated_bytes.all.allocated")
    block(a)
    t.reset_accumulated_memory_stats()
    return bool(ours == t.memory_stats().get("allocated_bytes.all.allocated"))


def _device(a: Any, t: Any) -> bool:
    a.set_device(1)
    seen = t.current_device_index()
    t.set_device_index(0)
    return bool(seen == 1 and a.current_device() == 0)


def _guard(a: Any, t: Any) -> bool:
    with a.device_guard(1):
        ours = t.current_device_index()
    with t.device_index(1):
        theirs = a.current_device()
    return bool(ours == theirs == 1 and a.current_device() == 0)


def _stream(a: Any, t: Any) -> bool:
    before, side = a.current_stream(), a.Stream()
    a.set_stream(side)
    ours = t.current_stream()
    t.set_stream(before)
    return bool(ours == side and a.current_stream() == before)


def _graph(a: Any, t: Any) -> bool:
    """Both make one, it captures, and it runs again."""
    x = torch.zeros(1, device=a.device())
    for graph in (a.create_graph(), t.Graph()):
        a.synchronize()
        with a.capture_to_graph(graph):
            x.add_(1)
        a.replay_graph(graph)
        graph.replay()
    a.synchronize()
    return bool(x.item() == 4)


def _capability(a: Any, t: Any) -> bool:
    ours = a.get_device_capability(0)
    try:
        return bool(ours == t.get_device_capability(0))
    except RuntimeError:  # a device that tells torch nothing: then each type is tried
        return torch.float32 in ours["supported_dtypes"]


def _random(a: Any, t: Any, name: str) -> Any:
    """torch's function; before torch 2.14, which brings it, the generator's method."""
    methods = {"get_rng_state": "get_state", "initial_seed": "initial_seed"}
    if (module := getattr(t, "random", None)) is not None:
        return getattr(module, name)
    return lambda *index: getattr(a.default_generator(*(index or (0,))), methods[name])()


def _none(name: str) -> Callable[[Any, Any], bool]:
    return lambda a, t: (getattr(a, name)(), getattr(t, name)()) == (None, None)


SAME: dict[str, Callable[[Any, Any], bool]] = {
    "current_device": _answer("current_device", "current_device_index"),
    "current_stream": _answer("current_stream", "", 0),
    "device": _answer("device", "current_accelerator"),
    "device_count": _answer("device_count"),
    "device_guard": _guard,
    "empty_cache": _none("empty_cache"),
    "empty_host_cache": _none("empty_host_cache"),
    "get_device_capability": _capability,
    "get_rng_state": lambda a, t: torch.equal(a.get_rng_state(0), _random(a, t, "get_rng_state")(0)),
    "initial_seed": lambda a, t: a.initial_seed() == _random(a, t, "initial_seed")(),
    "is_available": _answer("is_available"),
    "max_memory_allocated": _answer("max_memory_allocated", "", 0),
    "max_memory_reserved": _answer("max_memory_reserved", "", 0),
    "mem_get_info": _answer("mem_get_info", "get_memory_info", 0),
    "memory_allocated": _answer("memory_allocated", "", 0),
    "memory_reserved": _answer("memory_reserved", "", 0),
    "memory_stats": lambda a, t: t.memory_stats(0).items() <= a.memory_stats(0).items(),
    "reset_accumulated_memory_stats": _accumulated,
    "reset_peak_memory_stats": lambda a, t: (
        _peak(a, a.reset_peak_memory_stats) and _peak(a, t.reset_peak_memory_stats)
    ),
    "set_device": _device,
    "set_stream": _stream,
    "synchronize": _none("synchronize"),
    **dict.fromkeys(("create_graph", "capture_to_graph", "replay_graph"), _graph),
}


def problems(accelerator: Any) -> dict[str, str]:
    """By the member, beside torch's name for it: an empty string where both do the same."""
    said: dict[str, str] = json.loads(FACTS.read_text(encoding="utf-8"))["members"]
    found = dict.fromkeys(said, "no comparison is written for this member")
    for name, same in SAME.items():
        try:
            found[name] = "" if same(accelerator, torch.accelerator) else "does otherwise"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return {f"{name} as torch.accelerator.{said[name]}": problem for name, problem in found.items()}
