"""`CUDAAccelerator` where there is no device, and its rules by capability."""

import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from accel_core import SettingError  # noqa: E402
from accel_cuda import CUDA, ROCM  # noqa: E402
from accel_cuda.accelerator import CUDAAccelerator  # noqa: E402


@pytest.mark.skipif(
    bool(torch.version.cuda or torch.version.hip), reason="this torch has CUDA or ROCm"
)
def test_with_a_cpu_build_every_flag_is_false():
    flags = asdict(CUDAAccelerator(CUDA).capabilities())
    # These two are true of the kind of device and of the installed packages, device or not.
    assert flags.pop("is_fp64_supported") is True
    flags.pop("supports_nvtx_domain")
    assert not any(flags.values())
    assert {type(flag) for flag in flags.values()} == {bool}


@pytest.fixture
def described(monkeypatch):
    """`described(CUDA, name=...)`: an accelerator with one device that torch describes so."""

    def make(backend, **properties):
        record = SimpleNamespace(
            **{"name": "", "total_memory": 2**34, "major": 9, "minor": 0, **properties}
        )
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda index=None: record
        )
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        return CUDAAccelerator(backend)

    return make


@pytest.fixture
def with_capability(described, monkeypatch, tmp_path):
    """`with_capability(8, 0)`: an accelerator with a device of that capability; Triton is installed."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda major, minor, backend=CUDA: described(
        backend, major=major, minor=minor
    )


#: Compute capability, and whether float16, float8, Triton and its grouped products are used there.
RULES = [
    ((6, 1), False, False, False, False),
    ((7, 0), True, False, False, True),
    ((8, 0), True, False, True, True),
    ((8, 9), True, True, True, True),
    ((9, 0), True, True, True, False),
    ((12, 0), True, True, True, False),
]


@pytest.mark.parametrize(("capability", "fp16", "fp8", "triton", "grouped"), RULES)
def test_rules_by_capability(
    with_capability, monkeypatch, capability, fp16, fp8, triton, grouped
):
    monkeypatch.setattr(torch, "_grouped_mm", object(), raising=False)
    acc = with_capability(*capability)
    assert acc.is_fp16_supported() is fp16
    assert acc.is_fp8_supported() is fp8
    assert acc.is_triton_supported() is triton
    assert acc.prefer_triton_grouped_mm() is grouped


@pytest.mark.parametrize(
    ("value", "supported"), [("1", True), ("", False), (" ON ", True), ("off", False)]
)
def test_fp16_on_capability_6_is_a_setting(
    with_capability, monkeypatch, value, supported
):
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", value)
    assert with_capability(6, 0).is_fp16_supported() is supported


@pytest.mark.parametrize("value", ["1", "", " ON ", "off"])
def test_fp16_on_capability_5_is_no_setting(with_capability, monkeypatch, value):
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", value)
    assert with_capability(5, 0).is_fp16_supported() is False


def test_a_setting_of_fp16_that_is_not_valid_is_refused(with_capability, monkeypatch):
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", "perhaps")
    with pytest.raises(
        SettingError, match=r"DS_ALLOW_DEPRECATED_FP16='perhaps' is not valid"
    ):
        with_capability(6, 0).is_fp16_supported()


def test_a_setting_of_fp16_is_not_read_where_it_does_not_count(
    with_capability, monkeypatch
):
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", "perhaps")
    assert with_capability(7, 0).is_fp16_supported() is True


def test_a_torch_without_grouped_mm_leaves_triton(with_capability, monkeypatch):
    monkeypatch.delattr(torch, "_grouped_mm", raising=False)
    assert with_capability(9, 0).prefer_triton_grouped_mm() is True
    assert with_capability(6, 0).prefer_triton_grouped_mm() is False
    assert with_capability(9, 4, backend=ROCM).prefer_triton_grouped_mm() is False, (
        "nobody has measured it there"
    )


def test_without_triton(with_capability, monkeypatch):
    monkeypatch.setattr("accel_cuda.accelerator.is_installed", lambda package: False)
    assert with_capability(8, 0).is_triton_supported() is False
    assert with_capability(8, 0).prefer_triton_grouped_mm() is False


FP8 = {
    "gfx90a": False,
    "gfx942:xnack-": True,
    "gfx950": True,
    "gfx1100": False,
    "gfx1201": True,
}


@pytest.mark.parametrize(("architecture", "supported"), FP8.items())
def test_fp8_by_amds_architecture(described, architecture, supported):
    assert described(ROCM, gcnArchName=architecture).is_fp8_supported() is supported


UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"
HYPHENS = "2d2d2d2d-2d2d-2d2d-2d2d-2d2d2d2d2d2d"
UUIDS = [
    (CUDA, "NVIDIA H200", UUID, f"GPU-{UUID}"),
    (CUDA, "NVIDIA A100 MIG 1g.5gb", "c7384736-a75d", "MIG-c7384736-a75d"),
    (CUDA, "NVIDIA H200", None, None),
    # AMD's is the serial number, if it is spelled in the bytes.
    (
        ROCM,
        "AMD Instinct MI300X",
        "39666631-6262-3464-3361-306365366238",
        "GPU-9ff1bb4d3a0ce6b8",
    ),
    (ROCM, "AMD Instinct MI300X", UUID, f"GPU-{UUID}"),
    (ROCM, "AMD Instinct MI300X", HYPHENS, f"GPU-{HYPHENS}"),
]


@pytest.mark.parametrize(("backend", "name", "uuid", "written"), UUIDS)
def test_the_uuid_is_written_as_the_vendor_writes_it(
    described, backend, name, uuid, written
):
    acc = described(
        backend, name=name, uuid=uuid, pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0
    )
    properties = acc.device_properties(0)
    assert properties.uuid == written
    assert properties.pci_address == "0000:3b:00.0"


@pytest.fixture
def nvtx(monkeypatch, tmp_path):
    """An `nvtx` package that keeps what it is told."""
    (tmp_path / "nvtx.py").write_text(
        "calls = []\n"
        "def push_range(message, domain, category): calls.append(('push', message, domain, category))\n"
        "def pop_range(domain=None): calls.append(('pop', domain))\n"
    )
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)


def test_ranges_in_a_domain_go_through_nvtx(nvtx):
    acc = CUDAAccelerator(CUDA)
    assert acc.supports_nvtx_domain is True
    acc.range_push("forward", domain="deepspeed", category="engine")
    acc.range_pop(domain="deepspeed")
    acc.range_push("no domain")
    acc.range_pop()
    assert sys.modules["nvtx"].calls == [
        ("push", "forward", "deepspeed", "engine"),
        ("pop", "deepspeed"),
    ]


def test_without_nvtx_there_are_no_domains(monkeypatch):
    monkeypatch.setattr("accel_cuda.accelerator.is_installed", lambda package: False)
    acc = CUDAAccelerator(CUDA)
    assert acc.supports_nvtx_domain is False
    acc.range_push("forward", domain="deepspeed")
    acc.range_pop(domain="deepspeed")
