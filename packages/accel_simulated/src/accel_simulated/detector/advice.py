"""Replacements for vendor-specific code, with accel_core (`acc = accel_core.get_accelerator()`) or torch."""

from __future__ import annotations

from accel_core import Accelerator

__all__ = ["KINDS", "replacement"]

#: A sentence about each kind of vendor-specific place.
KINDS = {
    "call": "A function of one vendor's module is called.",
    "move": "A tensor or module is moved to a device by a method for one vendor.",
    "device": "A device of one vendor is named.",
    "collective": "A collective backend of one vendor, or the CPU's, is named.",
    "precision": "Mixed precision of one vendor's device is used.",
    "pinning": "Memory is pinned for one vendor's device.",
    "environment": "A vendor-specific environment variable selects the visible devices.",
    "type": "A type of tensors on one vendor's device is named.",
    "limited": "A function of torch is called that few devices have.",
    "ask": "The program checks for one vendor's device; the code after the check may not run on another.",
}

_BY_KIND = {
    "move": "`.to(acc.device())`",
    "device": "`acc.device(i)`, `acc.device_name(i)`; or `torch.accelerator.current_accelerator()`",
    "collective": "`acc.communication_backend_name()`; or no name: torch chooses by the device",
    "precision": "`acc.autocast(dtype)`; or `torch.autocast(acc.device_name())`",
    "pinning": "leave it out: torch pins for the accelerator that is there",
    "environment": "`acc.visible_devices_envs()`, `acc.visible_device_ids()`",
    "limited": "`torch.nn.parallel.DistributedDataParallel`, with one process for each device: `accel run`",
}
#: Names of `torch.cuda` and the like whose counterpart has another name, or needs a word.
_BY_NAME = {
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
    "flex_attention": "`torch.nn.functional.scaled_dot_product_attention` with `attn_mask`",
}
#: The functions of `torch.accelerator` that do what those of `torch.cuda` do, by the name in `torch.cuda`.
_IN_TORCH_ACCELERATOR = {
    "current_device": "current_device_index",
    "current_stream": "current_stream",
    "device_count": "device_count",
    "empty_cache": "empty_cache",
    "max_memory_allocated": "max_memory_allocated",
    "max_memory_reserved": "max_memory_reserved",
    "mem_get_info": "get_memory_info",
    "memory_allocated": "memory_allocated",
    "memory_reserved": "memory_reserved",
    "memory_stats": "memory_stats",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
    "set_device": "set_device_index",
    "set_stream": "set_stream",
    "synchronize": "synchronize",
}


def replacement(kind: str, what: str, device_type: str) -> str:
    """Return what to write instead of a place: of `("call", "torch.cuda.synchronize()", "cuda")`, say.

    Code in the text is in backquotes.
    """
    name = what.partition("(")[0].rpartition(".")[2]
    if what.startswith(".is_"):
        return "`acc.on_accelerator(tensor)`"
    if what == f"torch.{device_type}":
        return "`acc`, whatever the device"
    if name in _BY_NAME:
        return _BY_NAME[name]
    if kind == "ask" and name.endswith("ccl_available"):
        return "`acc.communication_backend_name()`"
    if kind == "type":
        return _tensor_type(name)
    return _BY_KIND.get(kind) or _member(name, device_type)


def _tensor_type(name: str) -> str:
    """Return the replacement for a type such as `torch.cuda.FloatTensor`."""
    if hasattr(Accelerator, name):
        return f"`acc.{name}`"
    return "`torch.tensor(data, dtype=..., device=acc.device())`"


def _member(name: str, device_type: str) -> str:
    """Return the members of `acc` and `torch.accelerator` for a function of a vendor's module."""
    if name.startswith("_") or not hasattr(Accelerator, name):
        return f'no counterpart: keep it behind a question, such as `if acc.name == "{device_type}":`'
    if name in _IN_TORCH_ACCELERATOR:
        in_torch = f"torch.accelerator.{_IN_TORCH_ACCELERATOR[name]}"
        return f"`acc.{name}()`; or `{in_torch}()`"
    return f"`acc.{name}()`"
