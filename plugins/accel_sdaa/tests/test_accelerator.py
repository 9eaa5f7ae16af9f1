"""`SDAAAccelerator` over a simulated torch.sdaa: with the names that were seen in use, and with fewer."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from accel_core import UnsupportedError  # noqa: E402
from accel_sdaa import BACKEND  # noqa: E402
from accel_sdaa.accelerator import SDAAAccelerator  # noqa: E402


@pytest.fixture
def sdaa(device):
    return SDAAAccelerator(BACKEND)


def test_constructing_asks_the_device_nothing(device):
    SDAAAccelerator(BACKEND)
    assert device[1].called == set()


def test_what_was_seen_in_use_is_used(sdaa, device):
    sdaa.synchronize(1)
    sdaa.set_device(1)
    assert (sdaa.current_device(), sdaa.device_count()) == (1, 2)
    assert sdaa.available_memory(0) == 1 << 20
    assert sdaa.total_memory(0) == 1 << 30
    assert {"torch.sdaa.synchronize", "torch.sdaa.mem_get_info"} <= device[1].called


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("device_count", lambda acc: acc.device_count()),
        ("current_device", lambda acc: acc.current_device()),
        ("synchronize", lambda acc: acc.synchronize()),
        ("memory_allocated", lambda acc: acc.memory_allocated(0)),
        ("max_memory_allocated", lambda acc: acc.max_memory_allocated()),
        ("reset_peak_memory_stats", lambda acc: acc.reset_max_memory_allocated()),
        ("default_generators", lambda acc: acc.default_generator(0)),
    ],
)
def test_what_is_missing_is_named(device, monkeypatch, missing, call):
    monkeypatch.delattr(device[0], missing)
    accelerator = SDAAAccelerator(BACKEND)
    with pytest.raises(UnsupportedError, match=rf"sdaa: {missing.removesuffix('s')}s? is not supported by"):
        call(accelerator)


def test_limits_are_not_known_to_exist(sdaa):
    with pytest.raises(UnsupportedError, match="set_per_process_memory_fraction"):
        sdaa.set_per_process_memory_fraction(0.5)


def test_defaults_stand_in_for_the_rest(device, monkeypatch):
    for name in ("memory_reserved", "max_memory_reserved", "empty_cache", "_lazy_call", "Event", "stream"):
        monkeypatch.delattr(device[0], name)
    accelerator = SDAAAccelerator(BACKEND)
    assert accelerator.memory_reserved() == accelerator.memory_allocated()
    accelerator.empty_cache()
    ran = []
    accelerator.lazy_call(lambda: ran.append(True))
    assert ran
    event = accelerator.Event(enable_timing=True)
    event.record()
    assert event.elapsed_time(event) == 0.0
    with accelerator.stream(None):
        pass


def test_no_graphs_and_no_triton(sdaa):
    with pytest.warns(UserWarning, match="there are no graphs here"):
        assert sdaa.create_graph() is None
    assert sdaa.supports_graphs() is False
    assert sdaa.is_triton_supported() is False


def test_ranges_are_torchs_own(sdaa):
    sdaa.range_push("forward", domain="d")
    sdaa.range_pop()


def test_generators_before_initialisation(sdaa, device):
    assert device[0].default_generators == ()
    assert isinstance(sdaa.default_generator(1), torch.Generator)
    assert "torch.sdaa.current_device" in device[1].called


@pytest.fixture
def compilers(monkeypatch):
    """`compilers(name, ...)`: those that torch_sdaa._inductor registers, on top of torch's two."""
    registered = ["inductor", "eager"]
    dynamo = ModuleType("torch._dynamo")
    dynamo.list_backends = lambda exclude_tags=(): list(registered)
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)

    def install(*names: str) -> None:
        package, inductor = ModuleType("torch_sdaa"), ModuleType("torch_sdaa._inductor")
        package.__path__ = []
        monkeypatch.setitem(sys.modules, "torch_sdaa", package)
        monkeypatch.setitem(sys.modules, "torch_sdaa._inductor", inductor)
        registered.extend(names)

    return install


def test_the_vendors_compiler(sdaa, compilers):
    compilers("teco_inductor")
    assert sdaa.get_compile_backend() == "teco_inductor"


def test_torchs_compiler_where_the_vendor_has_none(sdaa, compilers):
    assert sdaa.get_compile_backend() == "inductor"


def test_another_compiler(sdaa, compilers):
    compilers("teco_inductor")
    sdaa.set_compile_backend("eager")
    assert sdaa.get_compile_backend() == "eager"
    with pytest.raises(ValueError, match="teco_inductor"):
        sdaa.set_compile_backend("no_such_backend")
    assert sdaa.get_compile_backend() == "eager"


@pytest.mark.parametrize(("value", "ids"), [(None, None), ("", ()), ("16,17,31", (16, 17, 31))])
def test_visible_devices(sdaa, monkeypatch, value, ids):
    monkeypatch.delenv("SDAA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("SDAA_VISIBLE_DEVICES", value)
    assert sdaa.visible_device_ids() == ids


@pytest.mark.parametrize("ids", [[0, 0], [-1], ["x"], [True]])
def test_what_cannot_be_written(sdaa, ids):
    with pytest.raises(ValueError, match=r"indices, each once|names a device twice"):
        sdaa.set_visible_devices_envs({}, ids)


def test_visible_devices_are_written(sdaa):
    env: dict[str, str] = {}
    sdaa.set_visible_devices_envs(env, [2, 0])
    assert env == {"SDAA_VISIBLE_DEVICES": "2,0"}
