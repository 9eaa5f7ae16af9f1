"""`MLUAccelerator` over a simulated torch.mlu that has the vendor's names and signatures."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_mlu import BACKEND  # noqa: E402
from accel_mlu.accelerator import MLUAccelerator  # noqa: E402

UUID = "MLU-20004108-1414-0000-0000-000000000000"


@pytest.fixture
def mlu(device):
    return MLUAccelerator(BACKEND)


def test_constructing_asks_the_device_nothing(device):
    MLUAccelerator(BACKEND)
    assert device[1].called == set()


def test_members_are_the_vendors_functions(mlu, device):
    module, _ = device
    for name in ("current_device", "device_count", "empty_cache", "initial_seed", "is_initialized", "stream"):
        assert getattr(mlu, name) is getattr(module, name)
    assert mlu.Stream is module.Stream
    assert mlu.Event is module.Event


def test_availability_is_asked_of_cndev(mlu, device, monkeypatch):
    monkeypatch.setattr(device[0], "is_available", lambda: pytest.fail("the driver was asked"))
    assert mlu.is_available() is True


def test_a_count_that_fails_means_not_available(mlu, monkeypatch):
    def fails() -> int:
        raise RuntimeError("cndev")

    monkeypatch.setattr(mlu, "device_count", fails)
    assert mlu.is_available() is False


def test_ranges_are_cnpx(mlu, device):
    mlu.range_push("forward", domain="d", category="c")
    mlu.range_pop(domain="d")
    assert {"torch.mlu.cnpx.range_push", "torch.mlu.cnpx.range_pop"} <= device[1].called


def test_ranges_never_raise(mlu, device, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("CNPX functions not installed.")

    monkeypatch.setattr(device[0].cnpx, "range_push", fails)
    monkeypatch.setattr(device[0].cnpx, "range_pop", fails)
    mlu.range_push("forward")
    mlu.range_pop()


def test_the_version_of_cncl(mlu):
    assert mlu.communication_backend_name() == "cncl"
    assert mlu.communication_backend_version() == (2, 1, 0)


def test_a_build_without_cncl(mlu, device, monkeypatch):
    def fails() -> None:
        raise AttributeError("module 'torch_mlu._MLUC' has no attribute '_cncl_version'")

    monkeypatch.setattr(device[0].cncl, "version", fails)
    assert mlu.communication_backend_version() is None


@pytest.mark.parametrize("installed", [True, False])
def test_triton_where_it_is_installed(mlu, monkeypatch, installed):
    monkeypatch.setattr("accel_mlu.accelerator.is_installed", lambda name: installed)
    assert mlu.is_triton_supported() is installed


def test_dtypes_are_asked_of_the_device(mlu, device):
    assert mlu.is_bf16_supported() is True
    assert mlu.is_fp8_supported() is True
    assert {"torch.mlu.is_bf16_supported", "torch.mlu.is_fp8_supported"} <= device[1].called


def test_free_memory_is_the_devices(mlu):
    assert mlu.available_memory(1) == 1 << 20
    assert mlu.total_memory(1) == 1 << 30


def test_generators_before_initialisation(mlu, device):
    assert device[0].default_generators == ()
    assert isinstance(mlu.default_generator(1), torch.Generator)
    with pytest.raises(ValueError, match="device index 2 is out of range, 2 devices visible"):
        mlu.default_generator(2)


def test_graphs(mlu, device):
    graph = mlu.create_graph()
    assert isinstance(graph, device[0].MLUGraph)
    with mlu.capture_to_graph(graph, stream=mlu.Stream()):
        pass
    mlu.replay_graph(graph)
    assert "torch.mlu.MLUGraph.replay" in device[1].called


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "3"}, (3,)),
        ({"CUDA_VISIBLE_DEVICES": "3", "MLU_VISIBLE_DEVICES": "2,1"}, (2, 1)),
        ({"MLU_VISIBLE_DEVICES": "2", "CN_VISIBLE_DEVICES": ""}, ()),
        ({"CN_VISIBLE_DEVICES": "0, 1,x,2"}, (0, 1)),
        ({"CN_VISIBLE_DEVICES": "1,1"}, ()),
        ({"CN_VISIBLE_DEVICES": f"{UUID},0"}, (UUID,)),
    ],
)
def test_three_variables_in_order(mlu, monkeypatch, environ, ids):
    for name in BACKEND.visible_devices:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert mlu.visible_device_ids() == ids


@pytest.mark.parametrize(("ids", "value"), [([1, 0], "1,0"), ([], ""), ([UUID], UUID)])
def test_the_variable_that_wins_is_written(mlu, ids, value):
    env = {"MLU_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "7"}
    mlu.set_visible_devices_envs(env, ids)
    assert env == {"MLU_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "7", "CN_VISIBLE_DEVICES": value}


@pytest.mark.parametrize("ids", [[0, 0], ["MLU-2"], [-1], [0, UUID]])
def test_what_cannot_be_written(mlu, ids):
    with pytest.raises(ValueError, match=r"indices, or whole UUIDs|names a device twice"):
        mlu.set_visible_devices_envs({}, ids)
