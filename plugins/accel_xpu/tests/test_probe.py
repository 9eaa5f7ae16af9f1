"""Verdicts on the three ways to the device, in children, on distributions built on disk."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.machines import Machine

import accel_xpu
from accel_core import Backend, Evidence, Hardware, TorchBuild, Visibility

#: What IPEX does beside a torch of another release.
DEADLY = "import os; os._exit(127)"
#: WSL2's device node for any GPU.
NODE = "/dev/dxg"


def machine_with(root, version, source=DEADLY, kind="gpu", name="xpu"):
    """A machine with IPEX, built for that kind of device, and the extension for DeepSpeed."""
    machine = Machine(root, "accel_xpu", "intel_extension_for_pytorch", name)
    machine.package(source)
    files = {f"intel_extension_for_pytorch/lib/libintel-ext-pt-{kind}.so": ""}
    layouts._write(
        machine.site, {**files, "intel_extension_for_deepspeed/__init__.py": DEADLY}
    )
    machine.distribution("intel-extension-for-pytorch", version)
    machine.distribution("intel-extension-for-deepspeed", "0.9.4")
    return machine


IMPORTED = "raise RuntimeError('IPEX was imported')"


#: IPEX for processors is named by what `accel why xpu` says that it is, also where something else decides:
#: without a GPU, and beside another torch.
FOR_CPU = "; the installed IPEX is the CPU build, which does not support Intel GPUs"
OLD = "works with torch 2.8 only"
WAYS = [
    ("xpu", "2.8.10+xpu", DEADLY, "gpu", [NODE], "incompatible", "reason", OLD),
    (
        "xpu.external",
        "2.8.10+xpu",
        DEADLY,
        "gpu",
        [NODE],
        "incompatible",
        "reason",
        OLD,
    ),
    (
        "xpu",
        "2.99.0",
        DEADLY,
        "cpu",
        [NODE],
        "no_device",
        "reason",
        "the installed IPEX is the CPU build, which does not support Intel GPUs",
    ),
    # The extension's own import would import DeepSpeed, which asks for the accelerator.
    (
        "xpu.external",
        "2.99.0",
        IMPORTED,
        "gpu",
        [NODE],
        "broken",
        "reason",
        "Error: IPEX was imported",
    ),
    ("xpu", "2.8.0", DEADLY, "cpu", [], "incompatible", "description", FOR_CPU),
    ("xpu", "2.99.0", DEADLY, "cpu", [], "no_device", "description", FOR_CPU),
]


@pytest.mark.parametrize(
    ("name", "version", "source", "kind", "nodes", "status", "field", "words"), WAYS
)
def test_the_way_through_ipex_is_judged_without_importing_it(
    tmp_path, name, version, source, kind, nodes, status, field, words
):
    """What decides for any vendor's package is told in `tests/detection`."""
    found = machine_with(tmp_path, version, source, kind, name).probe(*nodes)
    assert found["status"] == status
    assert found["vendor_imported"] is False
    assert words in found[field]


CUDA = Backend(
    name="cuda", priority=200, device_type="cuda", hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)),
    visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda")
)  # fmt: skip
#: accel-cuda declares both: AMD's devices are nothing to a torch with CUDA.
OF_CUDA, OF_ROCM = (
    replace(CUDA, torch_integration=replace(CUDA.torch_integration, builds=(k,)))
    for k in ("cuda", "hip")
)
BOTH = TorchBuild("2.13.0", cuda="13.0", xpu="20250301")


OF_TORCH_WITH_XPU = TorchBuild("2.13.0+xpu", xpu="20250301")
WITH_ROCM = TorchBuild("2.13.0", hip="7.0", xpu="20250301")
NVIDIA = ("/dev/nvidia0",)
#: Another vendor's plugin, which is not for torch.cuda.
OTHER = replace(CUDA, name="npu", device_type="npu")


@pytest.fixture
def probed(monkeypatch):
    """`probed(build, nodes, others)`: the verdict on NATIVE with that torch and those devices."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def probe(build, nodes, others):
        evidence = Evidence(nodes=nodes)
        monkeypatch.setattr(accel_xpu, "torch_build", lambda: build)
        monkeypatch.setattr(accel_xpu, "evidence", lambda backend: evidence)
        return accel_xpu.accel_probe(accel_xpu.NATIVE, others)

    return probe


@pytest.mark.parametrize(
    ("build", "others"),
    [(BOTH, (CUDA,)), (WITH_ROCM, (CUDA,)), (BOTH, (OF_ROCM, OF_CUDA))],
)
def test_torchs_own_support_stands_aside_for_a_cuda_device(probed, build, others):
    """Of the same torch, where somebody is there to drive it."""
    found = probed(build, NVIDIA, others)
    assert found.usable is False
    assert found.deferred is True
    assert "also drives cuda devices" in found.reason
    assert "/dev/nvidia0" in found.reason
    assert "DS_ACCELERATOR=xpu" in found.hint


@pytest.mark.parametrize(
    ("build", "nodes", "others"),
    [
        (BOTH, NVIDIA, (OF_ROCM,)),
        (BOTH, (), (CUDA,)),
        (OF_TORCH_WITH_XPU, NVIDIA, (CUDA,)),
        (BOTH, NVIDIA, (OTHER,)),
    ],
    ids=["no plugin for it", "no device", "torch without CUDA", "another vendor"],
)
def test_torchs_own_support_stays_where_no_cuda_device_can_be_used(
    probed, build, nodes, others
):
    assert probed(build, nodes, others) is None


@pytest.mark.parametrize("value", ["", "-1"])
def test_torchs_own_support_stays_where_the_cuda_device_is_hidden(
    probed, monkeypatch, value
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert probed(BOTH, NVIDIA, (CUDA,)) is None


@pytest.fixture
def external(tmp_path):
    """A machine without packages, where xpu.external is asked for."""
    return Machine(tmp_path, "accel_xpu", "intel_extension_for_pytorch", "xpu.external")


def test_both_missing_packages_are_named(external):
    both = "intel_extension_for_pytorch and intel-extension-for-deepspeed are not installed"
    found = external.probe()
    assert found["status"] == "not_installed"
    assert found["reason"] == both


def test_the_one_missing_package_is_named(external):
    external.distribution("intel-extension-for-deepspeed", "0.9.4")
    assert external.probe()["reason"] == "intel_extension_for_pytorch is not installed"


def test_torchs_own_support_needs_torch_2_8(tmp_path):
    machine = Machine(tmp_path, "accel_xpu", "intel_extension_for_pytorch")
    machine.distribution("torch", "2.7.1")
    before = "torch.version.xpu, torch.xpu = '20250101', type(torch)('torch.xpu')"
    found = machine.probe(NODE, before=before, rank=1)
    assert found["status"] == "incompatible"
    assert found["reason"].startswith("the backend requires torch>=2.8, ")


REAL = os.environ.get("ACCEL_REAL_IPEX", "")


@pytest.mark.skipif(not REAL, reason="ACCEL_REAL_IPEX names no site-packages with IPEX")
@pytest.mark.parametrize("name", ["xpu", "xpu.external"])
def test_the_real_wheel_is_judged_by_its_metadata(tmp_path, name):
    machine = Machine(tmp_path, "accel_xpu", "intel_extension_for_pytorch", name)
    for item in Path(REAL).glob("intel_extension_for_*"):
        (machine.site / item.name).symlink_to(item, target_is_directory=True)
    found = machine.probe(NODE)
    assert found["status"] == "incompatible"
    assert found["vendor_imported"] is False
    assert "works with torch 2.8 only" in found["reason"]
    version = "__version__ = '2.8.0+xpu'\nxpu = '20250101'\n"
    slot = "class _C:\n    _get_privateuse1_backend_name = staticmethod(lambda: 'privateuseone')\n"
    torch = {
        "torch/__init__.py": f"from torch import version\n{slot}",
        "torch/version.py": version,
    }
    layouts._write(machine.site, torch)
    found = machine.probe(NODE)
    assert found["vendor_imported"] is False
    assert (
        name != "xpu"
        or found["reason"]
        == "the installed IPEX is the CPU build, which does not support Intel GPUs"
    )
