"""What holds of torch_npu or of the plugin alone, in this order in one process; see `run.py`.

The first see the device not started, or not used; the last may leave it capturing. torch_npu captures copies,
fills and kernels of CANN's newer library (aclnn) alone, and refuses operators by name.
"""

import contextlib
import ctypes
import inspect
import mmap
import os

import pytest
import torch

# --- what holds before anything has started a device or used the second one: first of all, in this order ---


def check_amounts_before_the_allocator_starts(acc):
    assert acc.memory_allocated(1) == 0
    assert set(acc.memory_stats(1).values()) == {0}
    assert acc.is_initialized() is False


def check_a_seed_before_the_device_starts(acc):
    acc.manual_seed_all(7)
    assert acc.is_initialized() is False


def check_what_waits_for_the_device(acc):
    """Deferred calls run once it starts, which a default generator makes it do."""
    seen = []
    acc.lazy_call(lambda: seen.append(acc.is_initialized()))
    assert seen == []
    assert torch.npu.default_generators == ()
    generator = acc.default_generator(1)
    assert generator.device == torch.device("npu", 1)
    assert acc.default_generator(None).device == torch.device("npu", 0)
    # The seed from before counts.
    assert (generator.initial_seed(), acc.initial_seed()) == (7, 7)
    with pytest.raises(
        ValueError, match="device index 2 is out of range, 2 devices visible"
    ):
        acc.default_generator(2)
    assert seen == [False]
    acc.lazy_call(lambda: seen.append("now"))
    assert seen == [False, "now"]


def check_a_device_that_nothing_has_selected(acc):
    """torch_npu's own functions fail here: ours select the device first, and give the other back."""
    with pytest.raises(RuntimeError, match="107002"):  # "the context is empty"
        torch.npu.get_device_properties(1)
    with pytest.raises(RuntimeError, match="Uninitialized default NPU stream"):
        torch.npu.current_stream(1)
    assert acc.mem_get_info(1) == (1 << 30, 1 << 30)
    assert acc.current_stream() == acc.default_stream()
    assert acc.current_stream(1).device == torch.device("npu", 1)
    assert acc.default_stream(1) == acc.current_stream(1)
    one = acc.device_properties(1)
    assert one.name == "Ascend910B1"
    assert one.total_memory == 1 << 30
    assert one.capability is None
    assert one.uuid == "20212223-2425-2627-2829-2a2b2c2d2e2f"
    assert (
        one.multiprocessors == 48
    )  # what torch_npu calls multi_processor_count: the vector units
    assert acc.device_properties().uuid != one.uuid
    assert acc.device_uuid(1) == one.uuid
    assert acc.current_device() == 0
    assert acc.is_initialized() is True


# --- what the device is, and what it runs on ---


def check_members_are_the_vendors_own_functions(acc):
    assert acc.device_module is torch.npu
    acc.manual_seed(7)
    assert acc.initial_seed() == torch.npu.initial_seed() == 7
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


# --- data types: what the chip and torch_npu say ---


def check_what_the_device_says(acc):
    """`STANDIN_SOC` is another chip in some children: bfloat16 came with the 910B."""
    newer = os.environ.get("STANDIN_SOC", "Ascend910B1") == "Ascend910B1"
    assert acc.is_bf16_supported() is acc.is_bf16_native() is newer
    assert acc.is_fp16_supported() is True
    assert (acc.is_fp8_supported(), acc.is_fp64_supported()) == (False, False)
    assert acc.supported_dtypes() == [
        torch.float32,
        torch.float16,
        *([torch.bfloat16] if newer else []),
    ]


def check_float64_becomes_float32(acc):
    """Why the plugin says that there is none: to be said otherwise once torch_npu has learnt better."""
    assert torch.ones(2, device="npu").double().dtype is torch.float32
    assert torch.ones(2, device="npu").to(torch.float64).dtype is torch.float32


# --- streams and events are truly asynchronous: work that was started has not been done yet ---


DELAY = 0.15


@contextlib.contextmanager
def slow_device():
    """Every copy and kernel takes its time from here on."""
    os.environ["STANDIN_DELAY_US"] = str(int(DELAY * 1e6))
    try:
        yield
        torch.npu.synchronize()
    finally:
        del os.environ["STANDIN_DELAY_US"]


def pinned(value):
    return torch.full((4,), float(value)).pin_memory()


def check_without_a_wait_the_old_value_is_read(acc):
    source, target, late = pinned(9), torch.zeros(4, device="npu"), acc.Stream()
    seen = torch.empty(4).pin_memory()
    acc.synchronize()
    with slow_device():
        with acc.stream(late):
            target.copy_(source, non_blocking=True)
            target.copy_(source, non_blocking=True)
            target.mul_(2)
        seen.copy_(target, non_blocking=True)
        acc.current_stream().synchronize()
        assert seen.tolist() != [18.0] * 4
    assert target.tolist() == [18.0] * 4


def check_a_kernel_that_fails_is_told_by_the_next_wait(acc):
    """As on a device; the text is torch_npu's own."""
    broken = torch.ones(2, 3, device="npu")
    from stand_in import kernels

    kernels.KERNELS["Abs"], kept = (lambda *_: 1 / 0), kernels.KERNELS["Abs"]
    try:
        torch.abs(broken)
        with pytest.raises(RuntimeError, match="507015"):
            acc.synchronize()
    finally:
        kernels.KERNELS["Abs"] = kept
    assert torch.abs(-torch.ones(2, device="npu")).tolist() == [1.0, 1.0]


# --- memory: names that torch_npu deprecates, and pages of the user's own ---


def check_the_old_names_warn_of_nothing(acc):
    assert acc.memory_cached() == acc.memory_reserved()
    assert acc.max_memory_cached() == acc.max_memory_reserved()
    acc.reset_max_memory_cached()
    assert acc.max_memory_cached() == acc.memory_reserved()


def check_the_users_own_memory_is_page_locked(acc):
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert address % acc.pin_memory_alignment() == 0
    assert acc.register_host_memory(address, 8192) is True
    assert acc.register_host_memory(address, 8192) is False
    acc.unregister_host_memory(address)
    with pytest.raises(RuntimeError, match="cannot be released: error 107000"):
        acc.unregister_host_memory(address)
    assert acc.register_host_memory(address + 8, 4096) is False


# --- compilation, and ranges of the profiler ---


def check_compile_backends(acc):
    assert acc.get_compile_backend() == "inductor"
    for name in ("npu", "npugraphs", "npugraph_ex", "eager", "inductor"):
        acc.set_compile_backend(name)
        assert acc.get_compile_backend() == name
    with pytest.raises(ValueError, match="npugraph_ex, npugraphs"):
        acc.set_compile_backend("nonsense")


def check_compiling_with_the_eager_backend(acc):
    acc.set_compile_backend("eager")
    double = torch.compile(lambda x: x + x, backend=acc.get_compile_backend())
    assert double(torch.ones(3, device="npu")).tolist() == [2.0] * 3
    acc.set_compile_backend("inductor")


def check_ranges_reach_mstx_with_their_domain(acc):
    from torch_npu._C import _mstx

    calls = []
    kept = _mstx._range_push_on_host, _mstx._range_pop
    _mstx._range_push_on_host = lambda *arguments: calls.append(arguments) or 0
    _mstx._range_pop = lambda domain: calls.append(domain) or 0
    try:
        acc.range_push("forward", domain="DeepSpeed", category="engine")
        acc.range_pop(domain="DeepSpeed")
        acc.range_push("plain")
        acc.range_pop()
        with acc.range("block"):
            pass
    finally:
        _mstx._range_push_on_host, _mstx._range_pop = kept
    assert acc.supports_nvtx_domain is True
    assert calls == [
        ("forward", "DeepSpeed"), "DeepSpeed", ("plain", "default"), "default",
        ("block", "default"), "default",
    ]  # fmt: skip


# --- nPUGraph: captured once, replayed on new values ---


def check_a_pool_and_a_stream_of_ones_own(acc):
    first, second, stream = acc.create_graph(), acc.create_graph(), acc.Stream()
    source = torch.full((4,), 2.0, device="npu")
    acc.synchronize()
    with acc.capture_to_graph(first, stream=stream):
        assert acc.current_stream() == stream
        one = source.clone()
    with acc.capture_to_graph(second, pool=first.pool(), stream=stream):
        two = one.clone()
    for graph in (first, second):
        acc.replay_graph(graph)
    acc.synchronize()
    assert two.tolist() == [2.0] * 4
    assert first.pool() == second.pool()


def check_a_kernel_by_name_is_refused(acc):
    """The end of the stand-in, in torch_npu's own words. Last: torch_npu may be left capturing."""
    x = torch.ones(2, device="npu")
    acc.synchronize()
    refused = pytest.raises(
        RuntimeError, match="Cannot run aclop operators during NPU graph capture"
    )
    with refused, acc.capture_to_graph(acc.create_graph()):
        torch.exp(x)
