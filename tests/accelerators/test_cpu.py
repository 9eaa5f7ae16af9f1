"""The CPU's own ways; comparisons with DeepSpeed's class, and its score card, tell the rest."""

import sys

import pytest
import torch

from accel_core import SettingError, UnsupportedError, hardware

# Devices


@pytest.mark.parametrize("index", [None, 0, 3])
def test_torch_knows_one_cpu_whatever_the_index(cpu, index):
    assert cpu.device_name(index) == "cpu"
    assert cpu.current_device_name() == "cpu"
    assert cpu.device(index) == torch.device("cpu")


def test_more_ranks_than_devices_share_them(cpu, monkeypatch):
    monkeypatch.setenv("LOCAL_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "5")
    assert cpu.current_device() == 1
    cpu.set_device(4)
    assert cpu.current_device() == 0


def test_a_launcher_variable_that_is_no_number_is_refused(cpu, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "one")
    with pytest.raises(SettingError, match="LOCAL_RANK='one'"):
        cpu.current_device()


def test_without_a_launcher_a_device_is_a_numa_node_with_cores(cpu):
    assert cpu.device_count() == hardware.numa_node_count() >= 1


def test_properties_are_the_processors(cpu):
    properties = cpu.device_properties()
    assert properties.name
    assert properties.total_memory == cpu.total_memory()
    assert properties.to_dict()["uuid"] is None
    assert cpu.device_uuid() is None
    cpu.synchronize()
    cpu.synchronize(0)


def test_no_variable_hides_the_cpu(cpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert cpu.visible_devices_envs() == []
    assert cpu.visible_device_ids() is None
    environment = {}
    cpu.set_visible_devices_envs(environment, [0, 1])
    assert environment == {}


# Streams and events


def test_the_classes_are_torchs_with_what_it_lacks(cpu):
    assert issubclass(cpu.Stream, torch.cpu.Stream)
    assert issubclass(cpu.Event, torch.cpu.Event)
    mine = cpu.Event()
    assert cpu.Stream().record_event(mine) is mine
    assert isinstance(cpu.Stream().record_event(), cpu.Event)


def test_time_needs_two_recorded_timing_events(cpu):
    recorded, fresh, untimed = (
        cpu.Event(enable_timing=True),
        cpu.Event(enable_timing=True),
        cpu.Event(),
    )
    recorded.record()
    untimed.record()
    with pytest.raises(RuntimeError, match="recorded"):
        recorded.elapsed_time(fresh)
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        recorded.elapsed_time(untimed)


# Pinned memory


def test_the_cpu_has_nothing_to_gain_from_pinned_memory(cpu):
    tensor = torch.arange(6.0).reshape(2, 3)
    assert cpu.pin_memory(tensor) is tensor
    assert cpu.is_pinned(tensor) is False
    cpu.unpin_memory(tensor)
    assert cpu._torch_pin_memory(tensor) is tensor


@pytest.mark.parametrize("device", ["meta", "cuda", "no such device"])
def test_pinned_memory_is_host_memory(cpu, device):
    with pytest.raises(ValueError, match=f"must be 'cpu', not '{device}'"):
        cpu.pin_empty(1, dtype=torch.float32, device=device)


# Data types


def test_data_types_are_what_the_processor_does(cpu):
    assert cpu.is_bf16_supported() is True
    assert cpu.is_bf16_native() is bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    assert cpu.is_fp16_supported() is bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    assert cpu.is_fp8_supported() is False
    assert cpu.is_fp64_supported() is True
    assert cpu.supported_dtypes()[0] is torch.float32
    assert torch.bfloat16 in cpu.supported_dtypes()


def test_without_onednn_the_processors_features_answer(cpu, monkeypatch):
    monkeypatch.setattr(
        cpu, "_torch", _Torch(mkldnn=None, features={"avx512_bf16": True})
    )
    assert cpu.is_bf16_native() is True
    assert cpu.is_fp16_supported() is False


def test_float16_is_listed_where_the_processor_has_it(cpu, monkeypatch):
    monkeypatch.setattr(cpu, "is_fp16_supported", lambda: True)
    assert cpu.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]


class _Torch:
    """As much of torch as a build without oneDNN would answer with."""

    def __init__(self, mkldnn, features):
        self.ops = type("Ops", (), {"mkldnn": mkldnn})
        self.cpu = type("CPU", (), {"get_capabilities": staticmethod(lambda: features)})


# Graphs, compilation, profiling


def test_a_graph_that_would_replay_nothing_is_loud_once(cpu):
    assert cpu.supports_graphs() is False
    assert cpu.is_current_stream_capturing() is False
    weight = torch.zeros(())
    with pytest.warns(
        UserWarning,
        match=r"cpu: device graphs are not supported.*replay_graph\(None\) runs nothing",
    ):
        graph = cpu.create_graph()
    assert graph is None
    with cpu.capture_to_graph(graph, pool=None, stream=cpu.Stream()):
        weight += 1
    for _ in range(10):
        cpu.replay_graph(graph)
    assert weight.item() == 1
    assert (
        cpu.create_graph() is None
    )  # where warnings are errors, as here: nothing is said again


def test_ranges_never_raise(cpu):
    cpu.range_pop()
    cpu.range_push("before the profiler")
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as profile:
        cpu.range_pop()
        cpu.range_push(3)
    cpu.range_pop()
    cpu.range_pop()
    assert "before the profiler" not in {event.key for event in profile.key_averages()}


# Launching


def test_gloo_unless_oneccl_is_installed(cpu, tmp_path, monkeypatch):
    assert cpu.communication_backend_name() == "gloo"
    assert cpu.communication_backend_version() is None
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(
        "raise RuntimeError('imported')"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cpu.communication_backend_name() == "ccl"
    assert "oneccl_bindings_for_pytorch" not in sys.modules
    assert cpu.export_envs() == []


def test_a_memory_fraction_is_not_for_the_cpu(cpu):
    with pytest.raises(
        UnsupportedError, match=r"^cpu: set_per_process_memory_fraction .* torch 2\."
    ):
        cpu.set_per_process_memory_fraction(0.5)
