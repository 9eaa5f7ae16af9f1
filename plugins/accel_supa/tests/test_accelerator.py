"""`SUPAAccelerator` over a simulated torch.supa that has the vendor's names and signatures."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_core import UnsupportedError  # noqa: E402
from accel_supa import BACKEND  # noqa: E402
from accel_supa.accelerator import SUPAAccelerator  # noqa: E402


@pytest.fixture
def supa(device):
    return SUPAAccelerator(BACKEND)


def test_constructing_asks_the_device_nothing(device):
    SUPAAccelerator(BACKEND)
    assert device[1].called == set()


def test_members_are_the_vendors_functions(supa, device):
    module, _ = device
    for name in ("current_device", "device_count", "empty_cache", "initial_seed", "is_initialized", "stream"):
        assert getattr(supa, name) is getattr(module, name)
    assert supa.Stream is module.Stream


def bf16(including_emulation: bool = True) -> bool:
    """torch_supa's own rule."""
    return including_emulation


def test_bfloat16_as_far_as_the_vendor_tells(device, monkeypatch):
    monkeypatch.setattr(device[0], "is_bf16_supported", bf16)
    assert SUPAAccelerator(BACKEND).is_bf16_supported() is True
    monkeypatch.setattr(device[0], "device_count", lambda: 0)
    assert SUPAAccelerator(BACKEND).is_bf16_supported() is False


def test_there_is_no_float64(supa):
    assert supa.is_fp64_supported() is False
    with pytest.raises(UnsupportedError, match="DoubleTensor is not supported"):
        supa.DoubleTensor([1.0])


def test_ranges_are_brtx(supa, device):
    supa.range_push("forward", domain="d", category="c")
    supa.range_pop(domain="d")
    assert {"torch.supa.brtx.range_push", "torch.supa.brtx.range_pop"} <= device[1].called


def test_ranges_never_raise(supa, device, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("brtx")

    monkeypatch.setattr(device[0].brtx, "range_push", fails)
    monkeypatch.setattr(device[0].brtx, "range_pop", fails)
    supa.range_push("forward")
    supa.range_pop()


@pytest.mark.parametrize(("answer", "version"), [((1, 3, 0), (1, 3, 0)), ((1, 3, 0, "rc2"), (1, 3, 0))])
def test_the_version_of_bccl(supa, device, monkeypatch, answer, version):
    monkeypatch.setattr(device[0].bccl, "version", lambda: answer, raising=False)
    assert supa.communication_backend_version() == version
    assert supa.communication_backend_name() == "bccl"


def test_a_build_without_bccl(supa, device, monkeypatch):
    assert supa.communication_backend_version() is None

    def fails() -> None:
        raise AttributeError("module 'torch_supa._C' has no attribute '_bccl_version'")

    monkeypatch.setattr(device[0].bccl, "version", fails, raising=False)
    assert supa.communication_backend_version() is None


@pytest.mark.parametrize("installed", [True, False])
def test_triton_where_it_is_installed(supa, monkeypatch, installed):
    monkeypatch.setattr("accel_supa.accelerator.is_installed", lambda name: installed)
    assert supa.is_triton_supported() is installed


def test_graphs(supa, device):
    graph = supa.create_graph()
    assert isinstance(graph, device[0].SUPAGraph)
    with supa.capture_to_graph(graph, stream=supa.Stream()):
        pass
    assert "torch.supa.graph" in device[1].called


def test_generators_before_initialisation(supa, device):
    assert device[0].default_generators == ()
    assert isinstance(supa.default_generator(0), torch.Generator)


@pytest.mark.parametrize(("value", "ids"), [(None, None), ("", ()), ("1,0", (1, 0)), (" 2 ", (2,))])
def test_visible_devices(supa, monkeypatch, value, ids):
    monkeypatch.delenv("SUPA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("SUPA_VISIBLE_DEVICES", value)
    assert supa.visible_device_ids() == ids


@pytest.mark.parametrize("value", ["0,0", "GPU-1", "0,", "-1", "0-2"])
def test_what_nobody_knows_the_meaning_of_is_refused(supa, monkeypatch, value):
    monkeypatch.setenv("SUPA_VISIBLE_DEVICES", value)
    with pytest.raises(ValueError, match="indices, each once"):
        supa.visible_device_ids()


def test_visible_devices_are_written(supa):
    env: dict[str, str] = {}
    supa.set_visible_devices_envs(env, [3, 1])
    assert env == {"SUPA_VISIBLE_DEVICES": "3,1"}
