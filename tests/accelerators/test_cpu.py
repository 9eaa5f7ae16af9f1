from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core import SettingError, UnsupportedError
from accel_core.accelerators.cpu import CPUAccelerator
from accel_core.detection.builtin import CPU
from accel_core.machine import host

TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}


# Nature


def test_calls_return_when_their_work_is_done(cpu: CPUAccelerator) -> None:
    assert cpu.is_synchronized_device() is True
    assert cpu.use_host_timers() is True
    assert cpu.resolves_data_dependency() is True
    assert cpu.handles_memory_backpressure() is True
    assert cpu.supports_nvtx_domain is False
    assert cpu.is_available() is True
    assert cpu.is_initialized() is True


# Devices


@pytest.mark.parametrize("index", [None, 0, 3])
def test_torch_knows_one_cpu_whatever_the_index(cpu: CPUAccelerator, index: int | None) -> None:
    assert cpu.device_name(index) == cpu.current_device_name() == "cpu"
    assert cpu.device(index) == torch.device("cpu")
    assert cpu.device() is cpu.device(1)


def test_indices_are_int_under_a_launcher(cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (cpu.device_count(), cpu.current_device()) == (4, 3)
    assert type(cpu.device_count()) is type(cpu.current_device()) is int


def test_more_ranks_than_devices_share_them(cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "5")
    assert cpu.current_device() == 1
    cpu.set_device(4)
    assert cpu.current_device() == 0


def test_a_launcher_variable_that_is_no_number_is_refused(
    cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "one")
    with pytest.raises(SettingError, match="LOCAL_RANK='one'"):
        cpu.current_device()


def test_without_a_launcher_a_device_is_a_numa_node_with_cores(cpu: CPUAccelerator) -> None:
    assert cpu.device_count() == host.numa_node_count() >= 1


def test_a_selection_holds_for_its_thread(cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SIZE", "4")
    cpu.set_device(2)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(cpu.current_device()))
    thread.start()
    thread.join()
    assert (cpu.current_device(), seen) == (2, [0])


def test_a_guard_restores_the_device_before(cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SIZE", "4")
    cpu.set_device(1)
    with contextlib.suppress(KeyError), cpu.device_guard(3):
        assert cpu.current_device() == 3
        raise KeyError
    assert cpu.current_device() == 1
    with cpu.device_guard(1), cpu.device_guard(None):
        assert cpu.current_device() == 1


def test_a_device_may_be_named_by_torchs_value(cpu: CPUAccelerator) -> None:
    cpu.set_device(torch.device("cpu"))
    cpu.set_device(torch.device("cpu", 0))
    assert cpu.current_device() == 0
    with pytest.raises(ValueError, match="cuda:0 is not a device of type 'cpu'"):
        cpu.set_device(torch.device("cuda", 0))


def test_a_negative_index_is_refused(cpu: CPUAccelerator) -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        cpu.set_device(-1)


def test_properties_are_the_processors(cpu: CPUAccelerator) -> None:
    properties = cpu.device_properties()
    assert properties.name
    assert properties.total_memory == cpu.total_memory()
    assert properties.to_dict()["uuid"] is cpu.device_uuid() is None
    cpu.synchronize()
    cpu.synchronize(0)


def test_no_variable_hides_the_cpu(cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert cpu.visible_devices_envs() == []
    assert cpu.visible_device_ids() is None
    environment: dict[str, str] = {}
    cpu.set_visible_devices_envs(environment, [0, 1])
    assert environment == {}


# Random numbers


def test_the_state_of_the_generator_goes_round(cpu: CPUAccelerator) -> None:
    state = cpu.get_rng_state()
    assert state.dtype is torch.uint8
    assert state.device.type == "cpu"
    first = torch.rand(100)
    cpu.set_rng_state(state, 0)
    assert torch.equal(torch.rand(100), first)
    cpu.set_rng_state(new_state=state, device_index=None)
    assert torch.equal(cpu.get_rng_state(device_index=1), state)


def test_seeding_repeats_the_numbers(cpu: CPUAccelerator) -> None:
    with cpu.fork_rng():
        cpu.manual_seed(7)
        first = torch.rand(10)
        cpu.manual_seed_all(7)
        assert torch.equal(torch.rand(10), first)
        assert cpu.initial_seed() == 7
        assert type(cpu.initial_seed()) is int


def test_forked_random_numbers_leave_no_trace(cpu: CPUAccelerator) -> None:
    before = cpu.get_rng_state()
    with contextlib.suppress(KeyError), cpu.fork_rng():
        torch.rand(3)
        raise KeyError
    with cpu.fork_rng(devices=iter([0])):
        torch.rand(3)
    assert torch.equal(cpu.get_rng_state(), before)


def test_the_generator_is_torchs_own(cpu: CPUAccelerator) -> None:
    assert cpu.random() is torch.random
    assert cpu.default_generator(0) is cpu.default_generator(None) is torch.default_generator


# Streams and events


def test_a_script_for_streams_runs_unchanged(cpu: CPUAccelerator) -> None:
    side, main = cpu.Stream(priority=-1), cpu.current_stream()
    assert main is cpu.default_stream() is cpu.current_stream(0)
    start, end = cpu.Event(enable_timing=True), cpu.Event(enable_timing=True)
    side.wait_stream(main)
    with cpu.stream(side):
        assert cpu.current_stream() is side
        start.record()
        total = sum(range(10_000))
        end.record(side)
    with cpu.stream(None):
        assert cpu.current_stream() is main
    assert total
    assert end.query() is side.query() is True
    side.wait_event(end)
    end.wait(main)
    end.synchronize()
    side.synchronize()
    milliseconds = start.elapsed_time(end)
    assert type(milliseconds) is float
    assert 0 < milliseconds < 10_000
    with side as entered:
        assert entered is side


def test_the_classes_are_torchs_with_what_it_lacks(cpu: CPUAccelerator) -> None:
    assert issubclass(cpu.Stream, torch.cpu.Stream)
    assert issubclass(cpu.Event, torch.cpu.Event)
    mine = cpu.Event()
    assert cpu.Stream().record_event(mine) is mine
    assert isinstance(cpu.Stream().record_event(), cpu.Event)


def test_time_needs_two_recorded_timing_events(cpu: CPUAccelerator) -> None:
    recorded, fresh, untimed = cpu.Event(enable_timing=True), cpu.Event(enable_timing=True), cpu.Event()
    recorded.record()
    untimed.record()
    with pytest.raises(RuntimeError, match="recorded"):
        recorded.elapsed_time(fresh)
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        recorded.elapsed_time(untimed)


# Pinned memory


def test_the_cpu_has_nothing_to_gain_from_pinned_memory(cpu: CPUAccelerator) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert cpu.pin_memory(tensor) is tensor
    assert cpu.is_pinned(tensor) is False
    cpu.unpin_memory(tensor)
    assert cpu._torch_pin_memory(tensor) is tensor


@pytest.mark.parametrize(("match_shape", "shape"), [(True, (2, 3)), (False, (6,))])
def test_a_template_gives_its_shape_and_keeps_its_values(
    cpu: CPUAccelerator, match_shape: bool, shape: tuple[int, ...]
) -> None:
    template = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    made = cpu.pin_memory(template, make_copy=False, match_shape=match_shape)
    assert (tuple(made.shape), made.dtype) == (shape, torch.float64)
    made.fill_(7)  # a scratch buffer: whoever asked for it writes there
    assert template.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("size", "shape"), [((2, 3), (2, 3)), (((2, 3),), (2, 3)), ((torch.Size([4]),), (4,))]
)
def test_empty_host_memory_takes_the_sizes_of_torch_empty(cpu: CPUAccelerator, size: Any, shape: Any) -> None:
    tensor = cpu.pin_empty(*size, dtype=torch.int16)
    assert tuple(tensor.shape) == shape
    assert tensor.dtype is torch.int16
    assert tensor.device.type == "cpu"


def test_empty_host_memory_like_another_tensor(cpu: CPUAccelerator) -> None:
    model = torch.zeros(2, 5, dtype=torch.float16)
    assert cpu.pin_empty_like(model).dtype is torch.float16
    like = cpu.pin_empty_like(model, device=torch.device("cpu"), dtype=torch.int8)
    assert (like.shape, like.dtype) == (model.shape, torch.int8)


@pytest.mark.parametrize("device", ["meta", "cuda", "no such device"])
def test_pinned_memory_is_host_memory(cpu: CPUAccelerator, device: str) -> None:
    with pytest.raises(ValueError, match=f"must be 'cpu', not '{device}'"):
        cpu.pin_empty(1, dtype=torch.float32, device=device)


def test_registering_host_memory_is_not_for_the_cpu(cpu: CPUAccelerator) -> None:
    assert cpu.register_host_memory(0x1000, 4096) is False
    assert cpu.unregister_host_memory(0x1000) is None
    assert cpu.pin_memory_alignment() == 1


# Data types


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_types_make_tensors_here(cpu: CPUAccelerator, name: str) -> None:
    tensor = getattr(cpu, name)([1, 2])
    assert tensor.dtype is TENSORS[name]
    assert tensor.tolist() == [1, 2]
    assert cpu.on_accelerator(tensor) is True
    assert cpu.on_accelerator(tensor.to("meta")) is False


def test_data_types_are_what_the_processor_does(cpu: CPUAccelerator) -> None:
    assert cpu.is_bf16_supported() is True
    assert cpu.is_bf16_native() is bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    assert cpu.is_fp16_supported() is bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    assert cpu.is_fp8_supported() is False
    assert cpu.is_fp64_supported() is True
    assert cpu.supported_dtypes()[0] is torch.float32
    assert torch.bfloat16 in cpu.supported_dtypes()


def test_without_onednn_the_processors_features_answer(
    cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_torch", _Torch(mkldnn=None, features={"avx512_bf16": True}))
    assert cpu.is_bf16_native() is True
    assert cpu.is_fp16_supported() is False


def test_float16_is_listed_where_the_processor_has_it(
    cpu: CPUAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "is_fp16_supported", lambda: True)
    assert cpu.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]


class _Torch:
    """As much of torch as a build without oneDNN would answer with."""

    def __init__(self, mkldnn: object, features: dict[str, bool]) -> None:
        self.ops = type("Ops", (), {"mkldnn": mkldnn})
        self.cpu = type("CPU", (), {"get_capabilities": staticmethod(lambda: features)})


def test_autocast_lowers_the_matrix_product(cpu: CPUAccelerator) -> None:
    ones = torch.ones(2, 2)
    with cpu.autocast(torch.bfloat16):
        assert (ones @ ones).dtype is torch.bfloat16
    with cpu.autocast(enabled=False):
        assert (ones @ ones).dtype is torch.float32
    with cpu.autocast():
        assert (ones @ ones).dtype is torch.get_autocast_dtype("cpu")


# Graphs, compilation, profiling


def test_a_graph_that_would_replay_nothing_is_loud_once(cpu: CPUAccelerator) -> None:
    assert cpu.supports_graphs() is cpu.is_current_stream_capturing() is False
    weight = torch.zeros(())
    with pytest.warns(UserWarning, match=r"cpu: there are no graphs here.*replay_graph\(None\) runs nothing"):
        graph = cpu.create_graph()
    assert graph is None
    with cpu.capture_to_graph(graph, pool=None, stream=cpu.Stream()):
        weight += 1
    for _ in range(10):
        cpu.replay_graph(graph)
    assert weight.item() == 1
    assert cpu.create_graph() is None  # where warnings are errors, as here: nothing is said again


@pytest.mark.slow
def test_the_compile_backend_is_checked(cpu: CPUAccelerator) -> None:
    assert cpu.get_compile_backend() == "inductor"
    cpu.set_compile_backend("eager")
    assert cpu.get_compile_backend() == "eager"
    with pytest.raises(
        ValueError, match=r"cpu: 'nonsense' is not a registered .* expected one of .*inductor"
    ):
        cpu.set_compile_backend("nonsense")
    assert cpu.get_compile_backend() == "eager"


def test_triton_is_not_for_the_cpu(cpu: CPUAccelerator) -> None:
    assert cpu.is_triton_supported() is cpu.prefer_triton_grouped_mm() is False


def test_ranges_show_in_the_profile(cpu: CPUAccelerator) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        cpu.range_push("outer", domain="d", category="c")
        with cpu.range("inner"):
            torch.ones(1)
        cpu.range_pop(domain="d")
    names = {event.key for event in profile.key_averages()}
    assert {"outer", "inner"} <= names


def test_ranges_never_raise(cpu: CPUAccelerator) -> None:
    cpu.range_pop()
    cpu.range_push("before the profiler")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        cpu.range_pop()
        cpu.range_push(3)  # type: ignore[arg-type]
    cpu.range_pop()
    cpu.range_pop()
    assert "before the profiler" not in {event.key for event in profile.key_averages()}


def test_a_lazy_call_runs_now(cpu: CPUAccelerator) -> None:
    assert cpu.lazy_call(callback=lambda: 5) == 5


# Launching


def test_gloo_unless_oneccl_is_installed(
    cpu: CPUAccelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu.communication_backend_name() == "gloo"
    assert cpu.communication_backend_version() is None
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cpu.communication_backend_name() == "ccl"
    assert "oneccl_bindings_for_pytorch" not in sys.modules
    assert cpu.export_envs() == []


def test_a_memory_fraction_is_not_for_the_cpu(cpu: CPUAccelerator) -> None:
    with pytest.raises(UnsupportedError, match=r"^cpu: set_per_process_memory_fraction .* torch 2\."):
        cpu.set_per_process_memory_fraction(0.5)


def test_constructing_and_asking_change_nothing(nothing_changes: None) -> None:
    CPUAccelerator(CPU).capabilities()
