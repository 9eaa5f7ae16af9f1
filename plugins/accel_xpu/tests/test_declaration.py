"""Three declarations of one device, and the next step after its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import accel_core
from accel_core import hint_for
from accel_xpu import IPEX, NATIVE
from accel_xpu.external import EXTERNAL

ALL = (EXTERNAL, IPEX, NATIVE)


def test_the_declarations():
    assert [b.vendor_imports[0] for b in ALL] == ["intel_extension_for_pytorch"] * 2 + ["torch"]
    assert {b.device_type for b in ALL} == {"xpu"}
    assert {b.visibility.variables for b in ALL} == {("ZE_AFFINITY_MASK",)}
    assert {b.communication_backend for b in ALL} == {"xccl"}
    assert {b.hardware.pci_ids for b in ALL} == {("8086/03",)}
    assert NATIVE.requires == ("torch>=2.8",)
    assert not NATIVE.in_torch.same_version
    assert "intel-extension-for-deepspeed" in EXTERNAL.requires


@pytest.mark.parametrize("variable", ["ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"])
def test_which_devices_are_visible_is_not_forwarded_to_other_nodes(variable):
    assert not variable.startswith(NATIVE.environment.forward)


@pytest.mark.parametrize(
    "variable", ["CCL_WORKER_COUNT", "FI_PROVIDER", "ZE_FLAT_DEVICE_HIERARCHY", "SYCL_CACHE_PERSISTENT"]
)
def test_what_steers_the_runtime_is_forwarded(variable):
    assert variable.startswith(NATIVE.environment.forward)


def test_render_nodes_are_no_sign_of_an_intel_gpu(tmp_path: Path):
    node = tmp_path / "dev" / "dri" / "renderD128"
    node.parent.mkdir(parents=True)
    node.touch()
    assert not accel_core.evidence(NATIVE, str(tmp_path))


SEEN = [
    (
        "ERROR! Intel Extension for PyTorch* needs to work with PyTorch 2.8.*, but PyTorch 2.13.0",
        "need no IPEX",
    ),
    ("module 'os' has no attribute 'exit'", "need no IPEX"),
    ("Torch not compiled with XPU enabled", "index-url"),
    ("PyTorch was compiled without XPU support", "index-url"),
    ("Cannot re-initialize XPU in forked subprocess.", "spawn"),
    ("XPU out of memory. Tried to allocate 20.00 MiB.", "xpu-smi"),
    ("XPU device count is zero!", "render"),
    ("No device of requested type available", "render"),
    ("libsycl.so.8: cannot open shared object file: No such file or directory", "setvars.sh"),
    ("libccl.so.1: undefined symbol: MPI_Comm", "setvars.sh"),
    ("libintel-ext-pt-gpu.so: undefined symbol: _ZNK5torch8autograd4Node4nameB5cxx11Ev", "setvars.sh"),
    ("Required aspect fp64 is not supported on the device", "float32"),
    ("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "dmesg"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN, ids=[message[:30] for message, _ in SEEN])
def test_known_errors(message, hint):
    assert hint in hint_for(RuntimeError(message), IPEX.hints)


def test_ipex_2_1_ends_the_process_with_an_exception():
    assert "need no IPEX" in hint_for(SystemExit(127), IPEX.hints)


@pytest.mark.parametrize("message", ["", "list index out of range", "exit 1277"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), NATIVE.hints) is None
