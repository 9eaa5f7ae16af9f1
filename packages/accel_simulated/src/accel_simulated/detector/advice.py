"""Replacements for code of one vendor, with accel_core (`acc = accel_core.get_accelerator()`) or torch."""

from __future__ import annotations

from accel_core import Accelerator

__all__ = ["KINDS", "instead"]

#: Each kind of place, and what it is, for people.
KINDS = {
    "call": "A function of one vendor's module is called.",
    "move": "A tensor or module is moved to one vendor's device by its own method.",
    "device": "A device of one vendor is named.",
    "collective": "A collective backend of one vendor is named.",
    "precision": "Mixed precision of one vendor's device is asked for.",
    "pinning": "Memory is page-locked for one vendor's device.",
    "environment": "A variable of one vendor's says which devices are visible.",
    "type": "A type of tensors on one vendor's device is named.",
    "ask": "It is asked whether one vendor's device is there; what depends on it may not run on another.",
}

_OF_KIND = {
    "move": "`.to(acc.device())`",
    "device": "`acc.device(i)`, `acc.device_name(i)`; or `torch.accelerator.current_accelerator()`",
    "collective": "`acc.communication_backend_name()`; or no name: torch chooses by the device",
    "precision": "`acc.autocast(dtype)`; or `torch.autocast(acc.device_name())`",
    "pinning": "leave it out: torch pins for the accelerator that is there",
    "environment": "`acc.visible_devices_envs()`, `acc.visible_device_ids()`",
}
#: Names of `torch.cuda` and its like whose counterpart is called otherwise, or needs a word.
_NAMED = {
    "_DeviceGuard": "`with acc.device_guard(i):`",
    "device": "`with acc.device_guard(i):`; or `with torch.accelerator.device_index(i):`",
    "device_of": "`with acc.device_guard(tensor.device.index):`",
    "get_device_name": "`acc.device_properties(i).name`",
    "get_device_properties": "`acc.device_properties(i)`",
    "get_device_capability": "`acc.device_properties(i).capability`",
    "init": "nothing: the device starts when it is used",
    "seed": "`acc.manual_seed_all(torch.seed())`",
    "seed_all": "`acc.manual_seed_all(torch.seed())`",
    "get_rng_state_all": "`[acc.get_rng_state(i) for i in range(acc.device_count())]`",
    "set_rng_state_all": "`acc.set_rng_state(state, i)` for each device",
    "Stream": "`acc.Stream()`; or `torch.Stream()`",
    "Event": "`acc.Event()`; or `torch.Event()`",
    "StreamContext": "`with acc.stream(s):`",
    "CUDAGraph": "`acc.create_graph()`, where `acc.supports_graphs()`",
    "graph": "`with acc.capture_to_graph(graph):`",
    "range_push": "`acc.range_push(text)`",
    "range_pop": "`acc.range_pop()`",
    "mark": "`acc.range(text)`",
    "GradScaler": "`acc.grad_scaler()`",
    "current_allocated_memory": "`acc.memory_allocated()`; or `torch.accelerator.memory_allocated()`",
    "driver_allocated_memory": "`acc.memory_reserved()`; or `torch.accelerator.memory_reserved()`",
    "recommended_max_memory": "`acc.total_memory()`",
    "is_available": "`acc.is_accelerator()`; or `torch.accelerator.is_available()`",
    "is_autocast_available": "`torch.amp.is_autocast_available(acc.device_name())`",
}
#: What `torch.accelerator` has under another name than `torch.cuda`.
_TORCHS = {
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "mem_get_info": "get_memory_info",
    **{
        name: name
        for name in (
            *(
                "current_stream",
                "device_count",
                "empty_cache",
                "max_memory_allocated",
                "max_memory_reserved",
            ),
            *(
                "memory_allocated",
                "memory_reserved",
                "memory_stats",
                "reset_accumulated_memory_stats",
            ),
            *("reset_peak_memory_stats", "set_stream", "synchronize"),
        )
    },
}
_NONE = 'no counterpart: keep it behind a question, such as `if acc.name == "{of}":`'


def instead(kind: str, what: str, of: str) -> str:
    """Return the replacement for a place: for `("call", "torch.cuda.synchronize()", "cuda")`, say.

    Code in it is in backquotes.
    """
    name = what.partition("(")[0].rpartition(".")[2]
    if what.startswith(".is_"):
        return "`acc.on_accelerator(tensor)`"
    if what == f"torch.{of}":
        return "`acc`, whatever the device"
    if name in _NAMED:
        return _NAMED[name]
    if kind == "ask" and name.endswith("ccl_available"):
        return "`acc.communication_backend_name()`"
    if kind == "type" and not hasattr(Accelerator, name):
        return "`torch.tensor(data, dtype=..., device=acc.device())`"
    if kind in _OF_KIND:
        return _OF_KIND[kind]
    if not name.startswith("_") and hasattr(Accelerator, name):
        torchs = (
            f"; or `torch.accelerator.{_TORCHS[name]}()`" if name in _TORCHS else ""
        )
        return f"`acc.{name}{'' if kind == 'type' else '()'}`{torchs}"
    return _NONE.format(of=of)
