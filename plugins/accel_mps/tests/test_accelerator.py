"""`MPSAccelerator` on the CPU wheel's own torch.mps, and with simulated answers of Metal behind it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_core import UnsupportedError  # noqa: E402
from accel_mps import BACKEND  # noqa: E402
from accel_mps.accelerator import MPSAccelerator  # noqa: E402

without_metal = pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has Metal")
GIB = 2**30


@pytest.fixture
def acc():
    return MPSAccelerator(BACKEND)


def test_the_names_are_torchs(surface):
    names = surface("mps", "torch.mps")
    used = (
        "current_allocated_memory", "driver_allocated_memory", "recommended_max_memory",
        "_get_default_mps_generator", "Event", "device_count", "is_available",
        "set_per_process_memory_fraction",
    )  # fmt: skip
    for name in used:
        assert name in names
        assert hasattr(torch.mps, name)
    assert not {"Stream", "current_device", "max_memory_allocated", "_lazy_call"} & set(names)
    assert {"get_name", "get_core_count"} <= set(surface("mps", "torch.backends.mps"))


@without_metal
class TestCPUBuild:
    def test_it_is_not_available(self, acc):
        assert (acc.is_available(), acc.device_count(), acc.is_initialized()) == (False, 0, False)
        assert acc.is_bf16_supported() is acc.is_fp16_supported() is False
        with pytest.warns(UserWarning, match="there are no graphs here"):
            assert acc.create_graph() is None

    def test_members_are_torchs_own_functions(self, acc):
        assert acc.device_count is torch.mps.device_count
        assert acc.empty_cache is torch.mps.empty_cache


@pytest.fixture
def metal(monkeypatch):
    """An accelerator with a device: torch's own module, its C functions answering without Metal."""
    calls: list[object] = []
    answers = {
        "_mps_is_available": lambda: True,
        "_mps_deviceSynchronize": lambda: calls.append("synchronize"),
        "_mps_currentAllocatedMemory": lambda: 2 * GIB,
        "_mps_driverAllocatedMemory": lambda: 5 * GIB,
        "_mps_recommendedMaxMemory": lambda: 12 * GIB,
        "_mps_setMemoryFraction": calls.append,
        "_mps_emptyCache": lambda: calls.append("empty_cache"),
        "_mps_acquireEvent": lambda enable_timing: 7,
        "_mps_releaseEvent": lambda event: None,
        "_mps_recordEvent": lambda event: calls.append(("record", event)),
        "_mps_elapsedTimeOfEvents": lambda start, end: 1.5,
    }
    generator = torch.Generator()
    for name, answer in answers.items():
        monkeypatch.setattr(torch._C, name, answer, raising=False)
    monkeypatch.setattr(torch._C, "_has_mps", True)
    monkeypatch.setattr(torch._C, "_mps_get_default_generator", lambda: generator, raising=False)
    monkeypatch.setattr(torch.mps, "_default_mps_generator", None)
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M2 Pro")
    monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: 19)
    accelerator = MPSAccelerator(BACKEND)
    accelerator.calls = calls
    return accelerator


def test_its_nature(metal):
    assert metal.is_synchronized_device() is True
    assert metal.use_host_timers() is True
    assert metal.resolves_data_dependency() is True
    assert metal.handles_memory_backpressure() is True


def test_indices_are_int(metal):
    assert type(metal.current_device()) is int
    assert (metal.current_device(), metal.device_count(), metal.current_device_name()) == (0, 1, "mps:0")
    metal.set_device(0)
    with pytest.raises(ValueError, match="out of range"):
        metal.set_device(1)
    metal.synchronize(0)
    assert metal.calls == ["synchronize"]


def test_properties(metal):
    properties = metal.device_properties()
    assert (properties.name, properties.total_memory, properties.multiprocessors) == (
        "Apple M2 Pro",
        12 * GIB,
        19,
    )
    assert properties.integrated is True


def test_events_are_metals(metal):
    assert metal.Event is torch.mps.Event
    event = metal.Event(enable_timing=True)
    event.record()
    assert event.elapsed_time(metal.Event(enable_timing=True)) == 1.5
    assert metal.calls == [("record", 7)]


def test_there_is_one_queue(metal):
    stream = metal.Stream()
    with metal.stream(stream), metal.stream(None):
        pass
    event = stream.record_event()
    assert type(event) is torch.mps.Event
    stream.wait_event(event)
    metal.current_stream().synchronize()
    assert metal.calls == [("record", 7), "synchronize"]
    assert metal.default_stream() is metal.current_stream()


def test_random_numbers(metal):
    generator = metal.default_generator(0)
    assert metal.default_generator(None) is generator
    with pytest.raises(ValueError, match="out of range"):
        metal.default_generator(1)
    metal.manual_seed_all(3)
    assert metal.initial_seed() == 3
    state = metal.get_rng_state(0)
    torch.rand(3, generator=generator)
    metal.set_rng_state(state, 0)
    assert torch.equal(metal.get_rng_state(), state)


def test_memory(metal):
    assert (metal.memory_allocated(), metal.memory_reserved(0), metal.memory_cached()) == (
        2 * GIB,
        5 * GIB,
        5 * GIB,
    )
    assert (metal.total_memory(), metal.available_memory()) == (12 * GIB, 7 * GIB)
    assert metal.mem_get_info() == (7 * GIB, 12 * GIB)
    assert metal.memory_stats() == {
        "allocated_bytes.all.current": 2 * GIB,
        "reserved_bytes.all.current": 5 * GIB,
    }
    metal.set_per_process_memory_fraction(0.5)
    assert metal.calls == [0.5]


def test_what_the_driver_holds_stands_for_peaks_that_torch_does_not_count(metal):
    assert (
        metal.max_memory_allocated() == metal.max_memory_reserved(0) == metal.max_memory_cached() == 5 * GIB
    )
    metal.reset_peak_memory_stats()
    metal.reset_max_memory_allocated()
    metal.reset_max_memory_cached()


def test_there_is_no_float64(metal):
    assert metal.is_fp64_supported() is False
    with pytest.raises(UnsupportedError, match="no float64"):
        metal.DoubleTensor([1.0])


@pytest.mark.parametrize("since_14", [True, False])
def test_narrow_types_are_known_without_a_start(metal, monkeypatch, since_14):
    asked = []
    monkeypatch.setattr(
        torch._C, "_mps_is_on_macos_or_newer", lambda *version: not asked.append(version) and since_14
    )
    monkeypatch.setattr(torch, "ones", None)  # a trial would start the device
    torch.backends.mps.is_macos_or_newer.cache_clear()
    assert metal.is_bf16_supported() is since_14
    assert metal.is_fp16_supported() is True
    assert asked == [(14, 0)]
    torch.backends.mps.is_macos_or_newer.cache_clear()


def test_a_callback_runs(metal):
    ran = []
    metal.lazy_call(lambda: ran.append(True))
    assert ran == [True]


def test_launching(metal):
    env: dict[str, str] = {}
    metal.set_visible_devices_envs(env, [0])
    assert env == {}
    assert metal.visible_devices_envs() == []
    assert metal.communication_backend_name() == "staged"
