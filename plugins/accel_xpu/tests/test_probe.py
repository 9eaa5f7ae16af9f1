"""Verdicts on the three ways to the device, in children, on distributions built on disk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import layouts

import accel_core
import accel_xpu
from accel_core import TorchBuild
from accel_core.backend import Hardware, Visibility
from accel_xpu import NATIVE, accel_probe

ARC = (("0000:03:00.0", "8086", "56a0", "030000"),)
#: What IPEX does beside a torch of another release.
DEADLY = "import os; os._exit(127)"


@pytest.fixture
def install(site: Path):
    entry_points = {layouts.GROUP: {"xpu": "accel_xpu", "xpu.external": "accel_xpu.external"}}
    layouts.dist_info(site, "accel-xpu", "0.1.0", entry_points)

    def ipex(version: str, source: str = DEADLY, library: str = "") -> None:
        files = {"intel_extension_for_pytorch/__init__.py": source}
        if library:
            files[f"intel_extension_for_pytorch/lib/{library}"] = ""
        layouts.dist_info(site, "intel-extension-for-pytorch", version)
        layouts._write(site, files)

    return ipex


@pytest.fixture
def external(site: Path):
    layouts.dist_info(site, "intel-extension-for-deepspeed", "0.9.4")
    layouts._write(site, {"intel_extension_for_deepspeed/__init__.py": DEADLY})


def by_way(said):
    """Verdicts by priority."""
    return {verdict["priority"]: verdict for verdict in said}


def test_hardware_without_packages(install, judge):
    said, imported = judge("xpu", pci=ARC)
    found = by_way(said)
    assert found[800]["status"] == "not_installed"
    assert "the hardware is there: PCI 8086:56a0" in found[800]["reason"]
    # The simulated torch is a CPU build.
    assert (found[790]["status"], found[790]["reason"]) == (
        "no_device",
        "torch 2.99.0+simulated is a CPU build, without XPU",
    )
    assert found[790]["hint"].endswith("accel setup xpu")
    assert imported == []


@pytest.mark.parametrize("pinned", [False, True])
def test_ipex_for_another_torch_is_not_imported(install, external, judge, pinned):
    install("2.8.10+xpu", library="libintel-ext-pt-gpu.so")
    said, imported = judge("xpu", pci=ARC, pinned=pinned)
    found = by_way(said)[800]
    assert found["status"] == "incompatible"
    assert found["reason"] == (
        "intel-extension-for-pytorch 2.8.10+xpu works with torch 2.8 only, "
        "and torch 2.99.0+simulated is installed"
    )
    assert found["hint"] == "accel setup xpu"
    assert imported == []
    (outside,), imported = judge("xpu.external", pci=ARC, pinned=pinned)
    assert (outside["status"], imported) == ("incompatible", [])


def test_versions_are_compared_before_the_hardware_is_looked_for(install, judge):
    install("2.8.0")
    assert by_way(judge("xpu")[0])[800]["status"] == "incompatible"


def test_ipex_without_metadata_is_not_imported(install, site, judge):
    layouts._write(site, {"intel_extension_for_pytorch/__init__.py": DEADLY})
    said, imported = judge("xpu", pci=ARC)
    found = by_way(said)[800]
    assert (found["status"], found["reason"]) == (
        "not_installed",
        "intel-extension-for-pytorch is not installed",
    )
    assert imported == []


def test_ipex_for_processors(install, judge):
    install("2.99.0", library="libintel-ext-pt-cpu.so")
    said, imported = judge("xpu", pci=ARC)
    assert by_way(said)[800]["status"] == "no_device"
    assert by_way(said)[800]["reason"] == "IPEX is its CPU build, without XPU"
    assert imported == []


@pytest.mark.parametrize("version", ["2.8.0", "2.99.0"])
def test_ipex_for_processors_is_named_also_where_something_else_decides(install, judge, version):
    """Without a GPU, and beside another torch: what `accel why xpu` says that it is."""
    install(version, library="libintel-ext-pt-cpu.so")
    said, imported = judge("xpu")
    assert by_way(said)[800]["status"] == ("incompatible" if version == "2.8.0" else "no_device")
    assert by_way(said)[800]["description"].endswith("; what is installed is IPEX's CPU build, without XPU")
    assert by_way(said)[790]["description"] == NATIVE.description
    assert imported == []


@pytest.mark.parametrize(
    ("source", "reason", "hint"),
    [
        ("raise SystemExit(127)", "it tried to end the process with 127", "accel setup xpu"),
        ("import os; os.exit(127)", "AttributeError: module 'os' has no attribute 'exit'", "accel setup xpu"),
    ],
)
def test_ipex_that_is_broken(install, judge, source, reason, hint):
    install("2.99.1+xpu", source, library="libintel-ext-pt-gpu.so")
    found = by_way(judge("xpu", pci=ARC)[0])[800]
    assert found["status"] == "broken"
    assert reason in found["reason"]
    assert hint in found["hint"]


def test_the_extension_for_deepspeed_is_not_imported_to_choose(install, external, judge):
    """Its own import would import DeepSpeed, which asks for the accelerator that is being chosen."""
    install("2.99.0", "raise RuntimeError('IPEX was imported')", library="libintel-ext-pt-gpu.so")
    (found,), imported = judge("xpu.external", pci=ARC)
    assert "RuntimeError: IPEX was imported" in found["reason"]
    assert imported == ["torch"]


def test_ipex_alone_is_no_extension_for_deepspeed(install, judge):
    install("2.99.0", library="libintel-ext-pt-gpu.so")
    (found,), imported = judge("xpu.external", pci=ARC)
    assert (found["status"], found["reason"]) == (
        "not_installed",
        "intel-extension-for-deepspeed is not installed",
    )
    assert found["hint"] == "accel setup xpu"
    assert imported == []


def test_a_torch_that_is_too_old(install, site, judge):
    (site / "torch").unlink()
    version = "__version__ = '2.7.1+xpu'\ncuda = hip = None\nxpu = '20250101'\n"
    layouts._write(site, {"torch/__init__.py": "", "torch/version.py": version})
    (site / "torch-2.99.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1\n"
    )
    found = by_way(judge("xpu", pci=ARC)[0])[790]
    assert found["status"] == "incompatible"
    assert "torch>=2.8" in found["reason"]


class TestBesideCUDA:
    """torch's own support stands aside where the same torch has a CUDA device to drive."""

    CUDA = accel_core.Backend(
        name="cuda", priority=200, device_type="cuda", hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)),
        visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda")
    )  # fmt: skip
    BOTH = TorchBuild("2.13.0", cuda="13.0", xpu="20250301")

    @pytest.fixture
    def ask(self, monkeypatch):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

        def run(build: TorchBuild, *, nvidia: bool = True, others=(self.CUDA,)):
            nodes = ("/dev/nvidia0",) if nvidia else ()
            monkeypatch.setattr(accel_xpu, "torch_build", lambda: build)
            monkeypatch.setattr(accel_xpu, "evidence", lambda backend: accel_core.Evidence(nodes=nodes))
            return accel_probe(NATIVE, others)

        return run

    def test_it_stands_aside(self, ask):
        found = ask(self.BOTH)
        assert (found.usable, found.stands_aside) == (False, True)
        assert "cuda devices too" in found.reason
        assert "/dev/nvidia0" in found.reason
        assert "DS_ACCELERATOR=xpu" in found.hint

    def test_not_without_a_cuda_device(self, ask):
        assert ask(self.BOTH, nvidia=False) is None

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_not_when_they_are_hidden(self, ask, monkeypatch, value):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert ask(self.BOTH) is None

    def test_not_when_this_torch_cannot_drive_them(self, ask):
        assert ask(TorchBuild("2.13.0+xpu", xpu="20250301")) is None

    def test_not_when_nobody_is_there_to_take_them(self, ask):
        other = replace(self.CUDA, name="npu", device_type="npu")
        assert ask(self.BOTH, others=(other,)) is None

    def test_not_when_this_torch_is_built_for_other_devices_of_that_name(self, ask):
        """accel-cuda declares CUDA and ROCm; AMD's devices are nothing to a torch with CUDA."""
        rocm = replace(self.CUDA, in_torch=self.CUDA.in_torch._replace(builds=("hip",)))
        assert ask(self.BOTH, others=(rocm,)) is None
        assert ask(
            self.BOTH, others=(rocm, replace(rocm, in_torch=rocm.in_torch._replace(builds=("cuda",))))
        ).stands_aside

    def test_rocm_counts_as_well(self, ask):
        assert ask(TorchBuild("2.13.0", hip="7.0", xpu="20250301")).stands_aside


REAL = os.environ.get("ACCEL_REAL_IPEX", "")


@pytest.mark.skipif(not REAL, reason="ACCEL_REAL_IPEX names no site-packages with IPEX")
def test_the_real_wheel_is_judged_by_its_metadata(install, site, judge):
    for item in Path(REAL).glob("intel_extension_for_*"):
        (site / item.name).symlink_to(item, target_is_directory=True)
    for name in ("xpu", "xpu.external"):
        said, imported = judge(name, pci=ARC)
        assert said[0]["status"] == "incompatible"
        assert "works with torch 2.8 only" in said[0]["reason"]
        assert imported == []
    (site / "torch").unlink()
    layouts._write(
        site, {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.8.0+xpu'\nxpu = '20250101'\n"}
    )
    said, imported = judge("xpu", pci=ARC)
    assert by_way(said)[800]["reason"] == "IPEX is its CPU build, without XPU"
    assert "intel_extension_for_pytorch" not in imported
