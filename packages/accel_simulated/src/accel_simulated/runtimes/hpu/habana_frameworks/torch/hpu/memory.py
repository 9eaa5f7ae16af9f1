"""`torch.hpu.memory`, simulated with the vendor's keys; the whole memory counts as reserved."""

import warnings as _sim_warnings

from accel_simulated.parts import devices as _sim_devices
from accel_simulated.parts import memory as _sim_memory
from accel_simulated.surface import add_vendor_names


def memory_stats(device=None):
    index = _sim_devices._get_device_index(device, optional=True)
    if not 0 <= index < _sim_devices.device_count():
        raise AssertionError("Invalid device id")
    stats = _sim_memory.memory_stats(device)
    _free_memory, total_memory = _sim_memory.mem_get_info(device)
    return {
        "Limit": total_memory,
        "InUse": stats.get("allocated_bytes.all.current", 0),
        "MaxInUse": stats.get("allocated_bytes.all.peak", 0),
        "NumAllocs": stats.get("allocation.all.allocated", 0),
        "NumFrees": stats.get("allocation.all.freed", 0),
        "ActiveAllocs": stats.get("allocation.all.current", 0),
        "MaxAllocSize": 0,
        "TotalSystemAllocs": stats.get("segment.all.allocated", 0),
        "TotalSystemFrees": stats.get("segment.all.freed", 0),
        "TotalActiveAllocs": stats.get("segment.all.current", 0),
    }


def memory_allocated(device=None):
    return memory_stats(device)["InUse"]


def max_memory_allocated(device=None):
    return memory_stats(device)["MaxInUse"]


def memory_reserved(device=None):
    return memory_stats(device)["Limit"]


def max_memory_reserved(device=None):
    return memory_stats(device)["Limit"]


# As in HabanaAI/gaudi-pytorch-bridge, habana_frameworks/torch/hpu/memory.py.


def mem_get_info(device=None):
    stats = memory_stats(device)
    return stats["Limit"] - stats["InUse"], stats["Limit"]


def _sim_warn_renamed(old, new):
    # The warning is issued at one line, so once per process: Python shows a warning once for each line.
    _sim_warnings.warn(
        f"torch.hpu.{old} has been renamed to torch.hpu.{new}",
        FutureWarning,
        stacklevel=2,
    )


def memory_cached(device=None):
    _sim_warn_renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device=None):
    _sim_warn_renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


add_vendor_names(globals(), "torch.hpu.memory")
del add_vendor_names
