"""`torch.npu.memory`, simulated. Old names issue warnings that the surface file cannot describe."""

import warnings as _sim_warnings

from accel_simulated.parts import memory as _sim_memory
from accel_simulated.surface import add_vendor_names


def _sim_warn_deprecated(name, replacement):
    _sim_warnings.warn(
        f"torch_npu.npu.{name} is deprecated, use {replacement}",
        DeprecationWarning,
        stacklevel=3,
    )


def memory_cached(device=None):
    _sim_warn_deprecated("memory_cached", "memory_reserved")
    return _sim_memory.memory_reserved(device)


def max_memory_cached(device=None):
    _sim_warn_deprecated("max_memory_cached", "max_memory_reserved")
    return _sim_memory.max_memory_reserved(device)


def reset_max_memory_allocated(device=None):
    _sim_warn_deprecated("reset_max_memory_allocated", "reset_peak_memory_stats")
    _sim_memory.reset_peak_memory_stats(device)


def reset_max_memory_cached(device=None):
    _sim_warn_deprecated("reset_max_memory_cached", "reset_peak_memory_stats")
    _sim_memory.reset_peak_memory_stats(device)


add_vendor_names(globals(), "torch.npu.memory")
del add_vendor_names
