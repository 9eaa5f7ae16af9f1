"""`KLXPUAccelerator` over a simulated torch.cuda that has torch's names and signatures."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_core import SettingError  # noqa: E402
from accel_klxpu import BACKEND  # noqa: E402
from accel_klxpu.accelerator import KLXPUAccelerator  # noqa: E402


@pytest.fixture
def klxpu(device):
    return KLXPUAccelerator(BACKEND)


def test_constructing_asks_the_device_nothing(device):
    KLXPUAccelerator(BACKEND)
    assert device[1].called == set()


def test_members_are_torch_cudas_functions(klxpu, device):
    module, _ = device
    for name in ("current_device", "device_count", "empty_cache", "initial_seed", "is_initialized", "stream"):
        assert getattr(klxpu, name) is getattr(module, name)
    assert klxpu.Stream is module.Stream


def test_its_name_is_its_own_and_its_device_torchs_cuda(klxpu):
    assert (klxpu.name, klxpu.device(1), klxpu.device_name(1)) == ("klxpu", torch.device("cuda:1"), "cuda:1")
    assert klxpu.communication_backend_name() == "nccl"


@pytest.mark.parametrize(
    ("value", "host"), [(None, True), ("0", True), ("", True), ("true", True), ("1", False)]
)
def test_events_measure_where_the_variable_says_so(klxpu, monkeypatch, value, host):
    """DeepSpeed's rule, which is the driver's: 1 and nothing else."""
    monkeypatch.delenv("XPU_EVENT_KL3_ENABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("XPU_EVENT_KL3_ENABLE", value)
    assert klxpu.use_host_timers() is host


def test_what_is_cudas_alone_is_not_here(klxpu, monkeypatch, tmp_path):
    """Also where Triton and nvtx are installed and the capability would do: all three are CUDA's."""
    for package in ("triton", "nvtx"):
        (tmp_path / f"{package}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert klxpu.is_triton_supported() is False
    assert klxpu.prefer_triton_grouped_mm() is False
    assert klxpu.supports_nvtx_domain is False
    assert klxpu.is_fp8_supported() is False
    assert klxpu.communication_backend_version() is None


def test_host_memory_is_registered_with_the_runtime(klxpu, device, monkeypatch):
    module, _ = device
    done, statuses = [], []

    class Runtime:
        def cudaHostRegister(self, *given):
            done.append(("register", *given))
            return 0

        def cudaHostUnregister(self, *given):
            done.append(("unregister", *given))
            return 713

    monkeypatch.setattr(module, "cudart", Runtime)
    monkeypatch.setattr(module, "check_error", statuses.append)
    assert klxpu.register_host_memory(4096, 8192) is True
    klxpu.unregister_host_memory(4096)
    assert done == [("register", 4096, 8192, 0), ("unregister", 4096)]
    assert statuses == [0, 713]


def test_without_a_device_there_is_nothing_to_register(device, monkeypatch):
    monkeypatch.setattr(device[0], "device_count", lambda: 0)
    klxpu = KLXPUAccelerator(BACKEND)
    assert klxpu.register_host_memory(4096, 8192) is False
    klxpu.unregister_host_memory(4096)
    assert "torch.cuda.cudart" not in device[1].called


@pytest.mark.parametrize(("value", "ids"), [(None, None), ("", ()), ("1,0", (1, 0)), (" 2 ", (2,))])
def test_visible_devices(klxpu, monkeypatch, value, ids):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert klxpu.visible_device_ids() == ids


@pytest.mark.parametrize("value", ["0,0", "GPU-1", "0,", "-1", "0-2"])
def test_what_nobody_knows_the_meaning_of_is_refused(klxpu, monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with pytest.raises(SettingError, match="indices, each once"):
        klxpu.visible_device_ids()


def test_visible_devices_are_written(klxpu):
    env: dict[str, str] = {}
    klxpu.set_visible_devices_envs(env, [3, 1])
    assert env == {"CUDA_VISIBLE_DEVICES": "3,1"}
