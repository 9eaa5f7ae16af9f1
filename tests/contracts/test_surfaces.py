"""The surface files: complete, and what they say of well-known names."""

import inspect
import json
from pathlib import Path

import pytest
from accel_tests import surfaces
from accel_tests.tools import load

import accel_core

_TOOL = load("compact_surfaces", "lab")
FULL = Path(__file__).parents[3] / "shared" / "vendor_surfaces"


@pytest.mark.parametrize("name", [*surfaces.files()])
def test_a_surface_names_its_package_and_its_evidence(name):
    source = json.loads((surfaces.FOLDER / f"{name}.json").read_text())["source"]
    assert source["vendor"] == name
    assert source["package"]
    assert source["evidence"].startswith(
        "usage" if name in ("neuron", "sdaa") else "source"
    )


@pytest.mark.skipif(
    not FULL.is_dir(), reason="the full surface files are not beside this checkout"
)
def test_they_are_what_the_full_ones_compact_to():
    for path in FULL.glob("*.json"):
        if path.stem not in _TOOL.LEFT_OUT:
            here = json.loads((surfaces.FOLDER / path.name).read_text())
            assert here == _TOOL.compact(json.loads(path.read_text())), path.name


def test_members_aliases_and_conditions():
    mlu = surfaces.load("mlu").modules["torch.mlu"]
    assert mlu["Device"].members.keys() == {"__enter__", "__exit__"}
    assert mlu["device"].members.keys() == {"__enter__", "__exit__"}
    assert mlu["default_generators"].kind == "attribute"
    hpu = surfaces.load("hpu").modules["torch.hpu"]
    assert hpu["HPUGraph"].condition == "is_lazy()"
    external = surfaces.load("xpu_external").modules[
        "intel_extension_for_deepspeed.xpu_accelerator"
    ]
    assert "range_push" in external["XPU_Accelerator"].members


def test_names_that_were_only_asked_for_are_not_offered():
    assert "nvtx" not in surfaces.load("sdaa").modules["torch.sdaa"]


def test_a_backend_finds_its_surface():
    def backend(device, *vendor):
        return accel_core.Backend(
            name=device, priority=1, device_type=device, vendor_import=vendor
        )

    assert surfaces.for_backend(backend("mlu", "torch_mlu")) is surfaces.load("mlu")
    assert surfaces.for_backend(backend("acme", "torch_acme")) is None
    native = surfaces.for_backend(backend("xpu", "torch"))
    ipex = surfaces.for_backend(backend("xpu", "intel_extension_for_pytorch"))
    more = ipex.modules["torch.xpu"].keys() - native.modules["torch.xpu"].keys()
    assert more
    assert native.modules["torch.xpu"].keys() <= ipex.modules["torch.xpu"].keys()


def test_torchs_own_surfaces_are_those_of_this_torch():
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the surfaces are those of torch 2.13")
    for device in ("cuda", "xpu", "mps"):
        module = getattr(torch, device)
        for name, entry in surfaces.load(device).modules[f"torch.{device}"].items():
            if not entry.condition and entry.kind != "module":
                assert hasattr(module, name), entry.path
            own = getattr(module, name, len)
            # A build with CUDA has one that is built in, without a signature.
            if (
                entry.kind == "function"
                and entry.signature
                and not inspect.isbuiltin(own)
            ):
                assert list(inspect.signature(own).parameters) == list(
                    entry.signature.parameters
                ), entry.path
