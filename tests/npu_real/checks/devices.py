"""Devices: names, counts, selection, properties; nothing is initialised by choosing or counting."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch


def check_choosing_and_counting_initialise_nothing(acc):
    assert acc.device_count() == 2
    assert acc.is_available() is True
    assert acc.is_initialized() is False
    assert torch.npu.is_initialized() is False


def check_identity(acc):
    assert (acc.name, acc._name, acc.api_level) == ("npu", "npu", 2)
    assert acc.backend.distribution == "accel-npu"
    assert acc.device_module is torch.npu
    assert copy.deepcopy(acc.accelerator) is acc.accelerator
    assert pickle.loads(pickle.dumps(acc.accelerator)) is acc.accelerator


def check_members_are_the_vendors_own_functions(acc):
    for name in (
        "current_device",
        "device_count",
        "empty_cache",
        "initial_seed",
        "is_initialized",
        "manual_seed",
    ):
        assert getattr(acc, name) is getattr(torch.npu, name), name
    assert acc.Stream is torch.npu.Stream
    assert acc.Event is torch.npu.Event
    assert acc.stream is torch.npu.stream


def check_nature(acc):
    for member in ("is_synchronized_device", "use_host_timers", "resolves_data_dependency"):
        assert getattr(acc, member)() is False
    assert acc.handles_memory_backpressure() is False


def check_names(acc):
    assert (acc.device_name(), acc.device_name(1)) == ("npu", "npu:1")
    assert acc.device(1) == torch.device("npu", 1)
    assert acc.device() == torch.device("npu")
    assert (acc.current_device(), acc.current_device_name()) == (0, "npu:0")


def check_properties_of_a_device_that_nothing_has_selected(acc):
    """torch_npu's own function fails here with 107002, "the context is empty"."""
    with pytest.raises(RuntimeError, match="107002"):
        torch.npu.get_device_properties(1)
    one = acc.device_properties(1)
    assert one.name == "Ascend910B1"
    assert one.total_memory == 1 << 30
    assert one.capability is None
    assert one.uuid == "20212223-2425-2627-2829-2a2b2c2d2e2f"
    assert one.multiprocessors == 48  # what torch_npu calls multi_processor_count: the vector units
    assert acc.device_properties().uuid != one.uuid
    assert acc.device_uuid(1) == one.uuid
    assert acc.current_device() == 0
    assert acc.is_initialized() is True


def check_selecting(acc):
    acc.set_device(1)
    assert acc.current_device() == 1
    assert torch.empty(1, device="npu").device.index == 1
    acc.set_device(0)
    with acc.device_guard(1):
        assert acc.current_device_name() == "npu:1"
    assert acc.current_device() == 0
    with acc.device_guard(None):
        assert acc.current_device() == 0


def check_indices_out_of_range(acc):
    for call in (acc.set_device, acc.device_properties, acc.device_guard, acc.mem_get_info):
        with pytest.raises(ValueError, match="out of range, 2 devices visible"):
            call(2)


def check_synchronize(acc):
    acc.synchronize()
    acc.synchronize(1)
    assert acc.current_device() == 0


def check_every_answer_has_its_type(acc):
    assert type(acc.device_count()) is int
    assert type(acc.current_device()) is int
    flags = acc.capabilities().to_dict()
    assert {type(flag) for flag in flags.values()} == {bool}
    assert [name for name, flag in flags.items() if flag] == [
        "is_available",
        "is_bf16_supported",
        "is_bf16_native",
        "is_fp16_supported",
        "supports_graphs",
        "supports_nvtx_domain",
    ]


def check_the_toolkit(acc):
    assert acc.toolkit() == {"CANN": "8.3.0", "ASCEND_HOME_PATH": None}
    assert acc.communication_backend_version() == (8, 3, 0)


def check_it_is_an_accelerator(acc):
    assert (acc.is_accelerator(), acc.device_type) == (True, "npu")
    supported = acc.get_device_capability(1)["supported_dtypes"]
    assert {torch.float32, torch.float16} <= set(supported)
