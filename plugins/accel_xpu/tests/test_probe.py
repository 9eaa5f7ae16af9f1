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
    layouts.dist_info(site, "intel-extension-for-deepspeed", "0.9.4")
    layouts._write(site, {"intel_extension_for_deepspeed/__init__.py": DEADLY})
    entry_points = {layouts.GROUP: {"xpu": "accel_xpu", "xpu.external": "accel_xpu.external"}}
    layouts.dist_info(site, "accel-xpu", "0.1.0", entry_points)

    def ipex(version: str, source: str = DEADLY, library: str = "") -> None:
        files = {"intel_extension_for_pytorch/__init__.py": source}
        if library:
            files[f"intel_extension_for_pytorch/lib/{library}"] = ""
        layouts.dist_info(site, "intel-extension-for-pytorch", version)
        layouts._write(site, files)

    return ipex


#: Backend, IPEX's version, what its import runs, for what it is built; and the verdict, its words, and what
#: was imported. The extension's own import would import DeepSpeed, which asks for the accelerator.
IMPORTED = "raise RuntimeError('IPEX was imported')"
VERDICTS = [
    ("xpu", "2.8.10+xpu", DEADLY, "gpu", "incompatible", "works with torch 2.8 only", []),
    ("xpu.external", "2.8.10+xpu", DEADLY, "gpu", "incompatible", "works with torch 2.8 only", []),
    ("xpu", "2.99.0", DEADLY, "cpu", "no_device", "IPEX is its CPU build, without XPU", []),
    ("xpu.external", "2.99.0", IMPORTED, "gpu", "broken", "RuntimeError: IPEX was imported", ["torch"]),
]


@pytest.mark.parametrize(("name", "version", "source", "kind", "status", "words", "imported"), VERDICTS)
def test_the_way_through_ipex(install, judge, name, version, source, kind, status, words, imported):
    """What decides for any vendor's package is told in `tests/detection`."""
    install(version, source, library=f"libintel-ext-pt-{kind}.so")
    said, seen = judge(name, pci=ARC)
    assert (said[0]["status"], seen) == (status, imported)
    assert words in said[0]["reason"]


@pytest.mark.parametrize("version", ["2.8.0", "2.99.0"])
def test_ipex_for_processors_is_named_also_where_something_else_decides(install, judge, version):
    """Without a GPU, and beside another torch: what `accel why xpu` says that it is."""
    install(version, library="libintel-ext-pt-cpu.so")
    (ipex, torchs), imported = judge("xpu")
    assert ipex["status"] == ("incompatible" if version == "2.8.0" else "no_device")
    assert ipex["description"].endswith("; what is installed is IPEX's CPU build, without XPU")
    assert (torchs["description"], imported) == (NATIVE.description, [])


CUDA = accel_core.Backend(
    name="cuda", priority=200, device_type="cuda", hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)),
    visibility=Visibility(variables=("CUDA_VISIBLE_DEVICES",), grammar="cuda")
)  # fmt: skip
#: accel-cuda declares both: AMD's devices are nothing to a torch with CUDA.
OF_CUDA, OF_ROCM = (
    replace(CUDA, in_torch=CUDA.in_torch._replace(builds=(kind,))) for kind in ("cuda", "hip")
)
BOTH = TorchBuild("2.13.0", cuda="13.0", xpu="20250301")


@pytest.mark.parametrize(
    ("build", "nodes", "others", "hidden", "aside"),
    [
        (BOTH, ("/dev/nvidia0",), (CUDA,), None, True),
        (TorchBuild("2.13.0", hip="7.0", xpu="20250301"), ("/dev/nvidia0",), (CUDA,), None, True),
        (BOTH, ("/dev/nvidia0",), (OF_ROCM, OF_CUDA), None, True),
        (BOTH, ("/dev/nvidia0",), (OF_ROCM,), None, False),
        (BOTH, (), (CUDA,), None, False),
        (BOTH, ("/dev/nvidia0",), (CUDA,), "", False),
        (BOTH, ("/dev/nvidia0",), (CUDA,), "-1", False),
        (TorchBuild("2.13.0+xpu", xpu="20250301"), ("/dev/nvidia0",), (CUDA,), None, False),
        (BOTH, ("/dev/nvidia0",), (replace(CUDA, name="npu", device_type="npu"),), None, False),
    ],
)
def test_torchs_own_support_stands_aside_for_a_cuda_device(monkeypatch, build, nodes, others, hidden, aside):
    """Of the same torch, where somebody is there to drive it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(accel_xpu, "torch_build", lambda: build)
    monkeypatch.setattr(accel_xpu, "evidence", lambda backend: accel_core.Evidence(nodes=nodes))
    found = accel_probe(NATIVE, others)
    if aside:
        assert (found.usable, found.stands_aside) == (False, True)
        assert "cuda devices too" in found.reason
        assert "/dev/nvidia0" in found.reason
        assert "DS_ACCELERATOR=xpu" in found.hint
    else:
        assert found is None


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
    assert said[0]["reason"] == "IPEX is its CPU build, without XPU"
    assert "intel_extension_for_pytorch" not in imported
