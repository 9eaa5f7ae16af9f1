"""Suggest replacements for vendor-specific code, from accel_core or torch.

In the replacements, `acc` stands for `accel_core.get_accelerator()`.
"""

from __future__ import annotations

from accel_core import Accelerator

__all__ = ["DEVICE_CHECK", "KINDS", "replacement"]

#: The kind of code that only checks for a device, such as `torch.cuda.is_available()`.
DEVICE_CHECK = "ask"
#: A sentence that explains each kind of vendor-specific code.
KINDS = {
    "call": "The program calls a function of one vendor's module.",
    "move": "The program moves a tensor or module to one vendor's device with a method such as .cuda().",
    "device": "The program names one vendor's device.",
    "collective": "The program names a communication backend for one vendor's device or for the CPU.",
    "precision": "The program uses mixed precision for one vendor's device.",
    "pinning": "The program pins memory for one vendor's device.",
    "environment": (
        "The program reads or sets a vendor-specific environment variable that selects the visible devices."
    ),
    "type": "The program names a tensor type of one vendor's device.",
    "setting": "The program reads or changes a setting of one vendor's libraries.",
    "limited": "The program calls a function of torch that few devices support.",
    DEVICE_CHECK: (
        "The program checks for one vendor's device. Code after the check may not run on another vendor's "
        "device."
    ),
}

_BY_KIND = {
    "move": "`.to(acc.device())`",
    "device": "`acc.device(i)`, `acc.device_name(i)`; or `torch.accelerator.current_accelerator()`",
    "collective": (
        "`acc.communication_backend_name()`; or omit the name: torch then chooses the backend for the device"
    ),
    "precision": "`acc.autocast(dtype)`; or `torch.autocast(acc.device_name())`",
    "pinning": "omit this argument: torch then pins memory for the current accelerator",
    "environment": "`acc.visible_devices_envs()`, `acc.visible_device_ids()`",
    "limited": "`torch.nn.parallel.DistributedDataParallel`, with one process per device: `accel run`",
}
#: Replacements for those names in vendors' modules whose counterpart has a different name or needs
#: explanation.
_BY_NAME = {
    "_DeviceGuard": "`with acc.device_guard(i):`",
    "device": "`with acc.device_guard(i):`; or `with torch.accelerator.device_index(i):`",
    "device_of": "`with acc.device_guard(tensor.device.index):`",
    "get_device_name": "`acc.device_properties(i).name`",
    "get_device_properties": "`acc.device_properties(i)`",
    "get_device_capability": "`acc.device_properties(i).capability`",
    "init": "omit this call: the device is initialized on first use",
    "OutOfMemoryError": "`torch.OutOfMemoryError`",
    "_lazy_call": "`acc.lazy_call(f)`",
    "cudart": "`acc.register_host_memory(address, size)`, `acc.unregister_host_memory(address)`",
    "version": "`acc.communication_backend_version()`",
    "seed": "`acc.manual_seed_all(torch.seed())`",
    "seed_all": "`acc.manual_seed_all(torch.seed())`",
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
    "custom_fwd": "`torch.amp.custom_fwd(device_type=acc.device_name())`",
    "custom_bwd": "`torch.amp.custom_bwd(device_type=acc.device_name())`",
    "current_allocated_memory": "`acc.memory_allocated()`; or `torch.accelerator.memory_allocated()`",
    "driver_allocated_memory": "`acc.memory_reserved()`; or `torch.accelerator.memory_reserved()`",
    "recommended_max_memory": "`acc.total_memory()`",
    "is_available": "`acc.is_accelerator()`; or `torch.accelerator.is_available()`",
    "is_autocast_available": "`torch.amp.is_autocast_available(acc.device_name())`",
    "flex_attention": "`torch.nn.functional.scaled_dot_product_attention` with `attn_mask`",
}
# The members of `torch.profiler.ProfilerActivity` for one vendor's device.
_BY_NAME |= dict.fromkeys(
    ("CUDA", "HPU", "MTIA", "XPU"),
    "`profile()` without `activities`: torch then records every available activity",
)
#: The functions of `torch.accelerator` that replace functions of `torch.cuda`, by their names in
#: `torch.cuda`.
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
    """Return the suggested replacement for vendor-specific code, with code in backticks.

    `kind` is a key of `KINDS`, `what` is the vendor-specific code, and `device_type` is the torch device
    type. For example, `replacement("call", "torch.cuda.synchronize()", "cuda")` suggests a call that runs on
    any device.
    """
    full_name, _, _ = what.partition("(")
    _, _, name = full_name.strip('"').rpartition(".")
    if what.startswith(".is_"):  # such as ".is_cuda"
        return "`acc.on_accelerator(tensor)`"
    if what == f"torch.{device_type}":
        return "`acc`, whatever the device"
    is_string = what.startswith('"')
    if name in _BY_NAME and kind != "setting" and not is_string:
        return _BY_NAME[name]
    if kind == DEVICE_CHECK:
        return _replace_device_check(what, name, device_type)
    return _replacement_for_kind(kind, name, device_type)


def _replace_device_check(what: str, name: str, device_type: str) -> str:
    """Return the replacement for a check such as `is_nccl_available()` or a comparison with `"cuda"`."""
    if "ccl" in name:  # such as "is_nccl_available"
        return "`acc.communication_backend_name()`"
    if what.startswith(('"', "torch.version.", "torch.backends.cuda.")):
        return "`acc.on_accelerator(tensor)`, `acc.is_accelerator()`; or `acc.name`"
    return _replace_function(name, device_type)


def _replacement_for_kind(kind: str, name: str, device_type: str) -> str:
    """Return the replacement that code of this kind has if its name has no replacement of its own."""
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if kind == "type":
        return _replace_tensor_type(name)
    if kind == "setting":
        return _explain_missing_counterpart(device_type)
    return _replace_function(name, device_type)


def _replace_tensor_type(name: str) -> str:
    """Return the replacement for a tensor type such as `torch.cuda.FloatTensor`."""
    if hasattr(Accelerator, name):
        return f"`acc.{name}`"
    return "`torch.tensor(data, dtype=..., device=acc.device())`"


def _replace_function(name: str, device_type: str) -> str:
    """Return the counterparts in `acc` and `torch.accelerator` of a function in a vendor's module."""
    if name.startswith("_") or not hasattr(Accelerator, name):
        return _explain_missing_counterpart(device_type)
    if name in _IN_TORCH_ACCELERATOR:
        in_torch = f"torch.accelerator.{_IN_TORCH_ACCELERATOR[name]}"
        return f"`acc.{name}()`; or `{in_torch}()`"
    return f"`acc.{name}()`"


def _explain_missing_counterpart(device_type: str) -> str:
    """Return the replacement for code that only one vendor's device has."""
    return f'no counterpart: run this code only under a condition such as `if acc.name == "{device_type}":`'
