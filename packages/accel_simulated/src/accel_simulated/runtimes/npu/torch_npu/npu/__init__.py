"""`torch.npu`, simulated with the names in its surface file; a test compares the parameters."""

import os as _sim_os
from types import SimpleNamespace as _sim_SimpleNamespace

from accel_simulated import device as _sim_device
from accel_simulated.host_memory import HostMemory as _sim_HostMemory
from accel_simulated.parts import devices as _sim_devices
from accel_simulated.parts import lifecycle as _sim_lifecycle
from accel_simulated.surface import add_vendor_names
from torch_npu.npu import graphs, memory, random, streams, utils
from torch_npu.npu.graphs import NPUGraph, graph
from torch_npu.npu.memory import (
    max_memory_cached,
    memory_cached,
    reset_max_memory_allocated,
    reset_max_memory_cached,
)
from torch_npu.npu.mstx import mstx
from torch_npu.npu.random import get_default_generator
from torch_npu.npu.utils import StreamContext, is_bf16_supported

_initialized = False
default_generators = ()  # filled when the runtime starts


def _lazy_call(cb):
    _sim_lifecycle._lazy_call(cb)


def can_device_access_peer(device_id, peer_device_id):
    index = _sim_require_valid_index(device_id)
    peer_index = _sim_require_valid_index(peer_device_id)
    return index != peer_index


def get_device_name(device_name=None):
    _sim_require_valid_index(device_name)
    return _sim_device.name()


def get_device_capability(device=None):
    # Ascend has no compute capability. For code that was written for CUDA, the vendor's function returns the
    # capability that the user sets in this variable.
    capability = _sim_os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
    numbers = capability.split(".")
    if len(numbers) != 2:
        return None
    return tuple(int(number) for number in numbers)


def get_device_properties(device_name=None):
    index = _sim_require_valid_index(device_name)
    return _sim_SimpleNamespace(
        name=_sim_device.name(),
        total_memory=_sim_device.memory_sizes[index],
        multi_processor_count=1,
        cube_core_num=1,
        vector_core_num=1,
        L2_cache_size=0,
        uuid=f"simulated-{index}",
    )


def _sim_require_valid_index(device):
    index = _sim_devices._get_device_index(device, optional=True)
    if not 0 <= index < _sim_device.count:
        raise AssertionError("Invalid device id")
    return index


_sim_host = _sim_HostMemory()


def npurt():
    _sim_lifecycle._lazy_init()
    # The vendor's object has more functions of CANN's runtime.
    return _sim_SimpleNamespace(
        npuHostRegister=_sim_host.register, npuHostUnregister=_sim_host.unregister
    )


add_vendor_names(globals(), "torch.npu")
del add_vendor_names
