"""`TorchAccelerator` over a simulated vendor: memory, data types, graphs and deferred calls."""

import types

import pytest
import torch
from accel_tests.forks import forked
from accel_tests.tools import raising

from accel_core import (
    Backend,
    HostMemoryError,
    TorchAccelerator,
    UnsupportedError,
)
from accel_core.interface.dtypes import try_dtype
from accel_core.interface.memory import is_pinning_unsupported

# Memory


@forked("torch")
def test_a_device_without_hooks_has_ordinary_memory_for_page_locked():
    """docs/howto/writing-a-plugin.md, "If your device lacks a feature": torch raises RuntimeError.

    As packages of PrivateUse1's simplest kind bring it: a name and a module, and no hooks from C++.
    """
    torch.utils.rename_privateuse1_backend("bare")
    module = types.ModuleType("torch.bare")
    told = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "_is_in_bad_fork": False,
    }
    vars(module).update(
        {name: lambda value=value: value for name, value in told.items()}
    )
    torch._register_device_module("bare", module)
    bare = TorchAccelerator(Backend(name="bare", priority=1, device_type="bare"))
    pinned = bare.pin_memory(torch.ones(2))
    assert pinned.tolist() == [1, 1]
    assert bare.is_pinned(pinned) is False
    assert bare.pin_empty(3, dtype=torch.int8).shape == (3,)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (NotImplementedError("You should override `getPinnedMemoryAllocator`"), True),
        (RuntimeError("Backend doesn't support getPinnedMemoryAllocator()"), True),
        (
            RuntimeError(
                "pin_memory=True requires …; no pinned memory allocator is available"
            ),
            True,
        ),
        (RuntimeError("CUDA error: out of memory"), False),
    ],
)
def test_a_full_host_is_no_device_without_pinned_memory(error, lacks):
    assert is_pinning_unsupported(error) is lacks


def test_a_full_host_is_not_a_full_device(simulated, monkeypatch):
    """WSL2's limit on pinned memory comes in CUDA's words (microsoft/WSL#8447)."""
    refuse = raising(RuntimeError("CUDA error: out of memory"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    monkeypatch.setattr(torch.Tensor, "new_empty", refuse)
    simulated.__dict__["_supports_pinned_memory"] = True
    for ask in (
        simulated.pin_memory,
        lambda t: simulated.pin_memory(t, make_copy=False),
    ):
        with pytest.raises(
            HostMemoryError,
            match=r"pinned host memory ran out.*WSL2.*pin_memory=False",
        ):
            ask(torch.ones(2))


def test_memory_on_the_device_is_not_page_locked(simulated, monkeypatch):
    """torch gives it for Metal (pytorch#181374)."""
    ordinary = torch.ones(2)
    on_the_device = torch.empty(1, device="meta")
    monkeypatch.setattr(torch, "empty", lambda *_, **__: on_the_device)
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda _: pytest.fail("it was not tried")
    )
    assert simulated.pin_memory(ordinary).tolist() == [1, 1]
    assert simulated.is_pinned(ordinary) is False


def test_free_memory_is_what_the_device_says(simulated):
    assert simulated.available_memory(1) == 700
    assert simulated.mem_get_info() == (700, 1 << 30)
    assert simulated.total_memory() == 1 << 30
    assert simulated.total_memory(1) == 1 << 30


def test_free_memory_without_the_devices_word_is_what_is_not_reserved(without):
    assert without("mem_get_info").mem_get_info(1) == ((1 << 30) - 200, 1 << 30)


def test_total_memory_without_properties(without):
    assert without("get_device_properties").total_memory(1) == 1 << 30
    with pytest.raises(UnsupportedError, match="total_memory"):
        without("mem_get_info").total_memory()


def test_statistics_keep_the_vendors_own_keys(simulated):
    assert simulated.memory_stats(1)["sim.pages"] == 3
    assert simulated.memory_stats()["allocated_bytes.all.current"] == 100


def test_statistics_before_the_start_have_the_keys(vendor, backend):
    vendor.memory_stats = lambda device=None: {}
    assert TorchAccelerator(backend()).memory_stats()["allocated_bytes.all.peak"] == 300
    zeros = TorchAccelerator(backend(name="cuda", device_type="cuda")).memory_stats()
    if not torch.cuda.is_initialized():
        assert {key for key, value in zeros.items() if value == 0} >= {
            "reserved_bytes.all.current"
        }


def test_statistics_without_the_vendors_word(without):
    assert without("memory_stats").memory_stats(1) == {
        "allocated_bytes.all.current": 100,
        "allocated_bytes.all.peak": 300,
        "reserved_bytes.all.current": 200,
        "reserved_bytes.all.peak": 400,
    }


def test_the_fraction_goes_to_the_device(simulated, vendor, without):
    simulated.set_per_process_memory_fraction(0.5)
    simulated.set_per_process_memory_fraction(fraction=0.25, device_index=1)
    assert vendor.asked == [(0.5, None), (0.25, 1)]
    vendor.set_per_process_memory_fraction = lambda fraction: vendor.asked.append(
        (fraction, vendor.current)
    )
    without().set_per_process_memory_fraction(0.125, 1)
    assert vendor.asked[-1] == (0.125, 1)
    with pytest.raises(UnsupportedError, match="set_per_process_memory_fraction"):
        without("set_per_process_memory_fraction").set_per_process_memory_fraction(0.5)


# Data types


def test_what_is_emulated_can_be_trained_in_and_is_not_native(simulated):
    assert simulated.is_bf16_supported() is True
    assert simulated.is_bf16_native() is False
    with pytest.warns(RuntimeWarning, match="the trial of torch.float16 failed"):
        assert simulated.supported_dtypes() == [torch.float32, torch.bfloat16]


def test_the_vendors_word_is_taken(vendor, without):
    vendor.is_bf16_supported = lambda: 1
    vendor.is_fp16_supported = lambda: 1
    vendor.is_fp8_supported = lambda including_emulation=True: not including_emulation
    accelerator = without()
    assert accelerator.is_bf16_supported() is True
    assert accelerator.is_fp16_supported() is True
    assert accelerator.is_fp8_supported() is True
    assert accelerator.is_bf16_native() is True
    vendor.device_count = lambda: 0
    assert without().is_bf16_supported() is False
    assert without().is_bf16_native() is False


def test_without_the_vendors_word_a_product_tells(backend, simulated):
    # torch.cpu as the device module: a device on which the trial really runs, and says nothing of types.
    accelerator = TorchAccelerator(backend(name="trial", device_type="cpu"))
    assert accelerator.is_fp16_supported() is True
    assert accelerator.is_bf16_supported() is True
    assert accelerator.is_bf16_native() is True  # nobody tells the two apart
    assert accelerator.is_fp8_supported() is False
    assert accelerator.supported_dtypes() == [
        torch.float32,
        torch.float16,
        torch.bfloat16,
    ]


def test_a_device_on_which_nothing_computes_says_no_and_why(simulated):
    for _ in range(2):
        with pytest.warns(
            RuntimeWarning,
            match="the trial of torch.float16 failed.*NotImplementedError",
        ):
            assert simulated.is_fp16_supported() is False


def test_a_trial_tells_in_which_data_types_a_device_computes():
    assert try_dtype(torch, "cpu", torch.bfloat16) is True
    assert (
        try_dtype(torch, "cpu", torch.float8_e4m3fn) is False
    )  # torch multiplies none of these there
    assert isinstance(
        try_dtype(torch, "meta", torch.float16), RuntimeError
    )  # which has no values at all


# Graphs


def test_graphs_are_found_by_what_the_vendor_has(simulated, vendor):
    graph = simulated.create_graph()
    assert simulated.supports_graphs() is True
    assert isinstance(graph, vendor.MAIAGraph)
    with simulated.capture_to_graph(graph):
        assert vendor.running == (graph, None, "", None)
    with simulated.capture_to_graph(graph, "pool", stream="stream"):
        assert vendor.running == (graph, "stream", "", "pool")
    simulated.replay_graph(graph)
    assert graph.replays == 1
    with simulated.capture_to_graph(None):
        assert vendor.running is None


def test_a_graph_class_of_another_vendors_name_is_found(vendor, without):
    vendor.CUDAGraph, vendor.NoGraph = vendor.MAIAGraph, object()
    assert type(without("MAIAGraph").create_graph()) is vendor.CUDAGraph


def without_graphs(accelerator):
    assert accelerator.supports_graphs() is False
    with pytest.warns(UserWarning, match="graphs are not supported"):
        assert accelerator.create_graph() is None


@pytest.mark.parametrize("missing", ["graph", "MAIAGraph"])
def test_half_a_graph_interface_is_none(without, missing):
    without_graphs(without(missing))


def test_a_graph_class_that_refuses_is_none(vendor, without):
    class CUDAGraph:  # what torch has in a build without CUDA
        def __init__(self):
            raise RuntimeError("Tried to instantiate dummy base class CUDAGraph")

        def replay(self): ...

    vendor.CUDAGraph = CUDAGraph
    without_graphs(without("MAIAGraph"))


def test_graphs_need_a_device(vendor, without):
    vendor.device_count = lambda: 0
    without_graphs(without())


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("instantiate", []),
        ("reset", []),
        ("enable_debug_mode", []),
        ("debug_dump", ["g"]),
    ],
)
def test_what_a_vendors_graph_lacks_is_named(simulated, vendor, name, given):
    member = getattr(
        simulated,
        "enable_graph_debug_mode" if name == "enable_debug_mode" else f"{name}_graph",
    )
    graph = simulated.create_graph()
    with pytest.raises(
        UnsupportedError,
        match=rf"^simulated: Graph\.{name} is not supported by torch 2\.",
    ):
        member(graph, *given)
    setattr(graph, name, lambda *arguments: vendor.asked.append([*arguments]))
    assert member(graph, *given) is None
    assert member(None, *given) is None
    assert vendor.asked == [given]
    with pytest.raises(
        UnsupportedError, match=r"^simulated: Graph with keep_graph is not supported"
    ):
        simulated.create_graph(keep_graph=True)


# Deferred calls


def test_a_lazy_call_waits_where_the_vendor_can(simulated, vendor, without):
    def callback():
        return 3

    simulated.lazy_call(callback=callback)
    assert vendor.asked == [("lazy", callback)]
    assert without("_lazy_call").lazy_call(callback) == 3
