"""What the device is, and what it runs on."""

import inspect

import torch


def check_members_are_the_vendors_own_functions(acc):
    assert acc.device_module is torch.npu
    acc.manual_seed(7)
    assert torch.npu.initial_seed() == 7
    assert acc.initial_seed() == 7
    for name in ("current_device", "device_count", "empty_cache", "is_initialized"):
        getattr(acc, name)()  # the first call decides
        # Around a question stands what tells of a driver that refuses it.
        assert inspect.unwrap(getattr(acc, name)) is inspect.unwrap(
            getattr(torch.npu, name)
        ), name
    assert acc.Stream is torch.npu.Stream
    assert issubclass(acc.Event, torch.npu.Event)  # which takes no `external`
    with acc.stream(None):
        assert acc.stream is torch.npu.stream


def check_the_capabilities(acc):
    assert [name for name, flag in acc.capabilities().to_dict().items() if flag] == [
        "is_available", "is_bf16_supported", "is_bf16_native", "is_fp16_supported", "supports_graphs",
        "supports_nvtx_domain",
    ]  # fmt: skip


def check_the_toolkit(acc):
    assert acc.toolkit() == {"CANN": "8.3.0", "ASCEND_HOME_PATH": None}


def check_torchs_own_seed_reaches_the_devices(acc):
    for index in (0, 1):
        torch.manual_seed(21)
        numbers = torch.randn(5, device=f"npu:{index}").cpu()
        assert acc.default_generator(index).initial_seed() == 21
        torch.manual_seed(21)
        assert torch.equal(torch.randn(5, device=f"npu:{index}").cpu(), numbers)
