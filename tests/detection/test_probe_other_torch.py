"""A vendor's package that was built for another torch, by its symbols or by its metadata."""

import sys

import pytest
from accel_tests.asking import judge, vendor

from accel_core import TorchIntegration
from accel_core.verdict import Status

LACKS = "/site/torch_npu/lib/libtorch_npu.so: undefined symbol: "


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZN3c1021throwNullDataPtrErrorEv",
        "_ZNK2at10TensorBase4sizeEl",
        "_ZN5torch8autograd4Node4nameEv",
        "_ZTIN3c105ErrorE",
    ],
)
def test_a_library_that_lacks_a_symbol_of_torch_was_built_for_another_torch(
    torch_world, symbol
):
    vendor(torch_world, f"raise ImportError({LACKS + symbol!r})")
    found = judge()
    assert found.status is Status.BROKEN
    assert found.reason == (
        f"torch_npu failed: built for another torch than 2.99.0+simulated: ImportError: {LACKS}{symbol}"
    )
    assert found.hint == "install the vendor's wheel for torch 2.99.0+simulated"
    assert found.cause == f"ImportError: {LACKS}{symbol}"


@pytest.mark.parametrize(
    "symbol", ["aclInit", "_ZN4acme4opensERKN2at6TensorE", "_ZN6c10_npu3getEv"]
)
def test_a_symbol_of_anybody_else_tells_nothing_of_torch(torch_world, symbol):
    vendor(torch_world, f"raise ImportError({LACKS + symbol!r})")
    found = judge()
    assert found.reason == f"torch_npu failed: ImportError: {LACKS}{symbol}"
    assert found.hint == ""


def test_a_hint_of_the_plugins_own_comes_before_that(torch_world):
    vendor(
        torch_world,
        f"raise ImportError('{LACKS}_ZN3c104getEv')",
        hints=(("undefined", "update CANN"),),
    )
    assert judge().hint == "update CANN"


def test_a_torch_that_does_not_import_is_for_the_doctor(torch_world):
    torch_world.module("torch", f"raise ImportError('{LACKS}_ZN3c104getEv')")
    vendor(torch_world, "")
    found = judge()
    assert found.hint.startswith("run `accel doctor` in the program's folder")
    assert "another torch" not in found.reason


OTHER = (
    "torch-npu {0} works with torch 2.8 only, but torch 2.99.0+simulated is installed"
)
TORCH_2_8 = "pip install 'torch==2.8.*'"
#: Its version, whether it is pinned, its own way out; status, reason, next step.
RELEASES = [
    ("2.8.10+xpu", False, "", Status.INCOMPATIBLE, OTHER, TORCH_2_8),
    ("2.8.10+xpu", True, "", Status.INCOMPATIBLE, OTHER, TORCH_2_8),
    ("2.8", False, "do this", Status.INCOMPATIBLE, OTHER, f"{TORCH_2_8}, or: do this"),
    ("2.99.7.post1+cann", False, "", Status.USABLE, "", ""),
    (
        "",
        False,
        "do this",
        Status.NOT_INSTALLED,
        "torch-npu is not installed",
        "do this",
    ),
]
BUILT_FOR = TorchIntegration(same_version=("torch-npu",))


@pytest.mark.parametrize(
    ("version", "pinned", "way_out", "status", "reason", "hint"), RELEASES
)
def test_a_package_of_another_release_of_torch_is_not_imported(
    torch_world, version, pinned, way_out, status, reason, hint
):
    """Such a package may end the process when it is imported beside another torch."""
    if version:
        torch_world.distribution("torch-npu", version)
    source = (
        ""
        if status is Status.USABLE
        else "raise KeyboardInterrupt('imported beside another torch')"
    )
    vendor(torch_world, source, torch_integration=BUILT_FOR, install_hint=way_out)
    found = judge(pinned=pinned)
    assert found.status == status
    assert found.reason == reason.format(version)
    assert found.hint == hint
    assert found.usable or not {"torch", "torch_npu"} & set(sys.modules)


def test_without_torch_it_is_torch_that_is_missing(world):
    world.distribution("torch-npu", "2.8")
    vendor(world, "", torch_integration=BUILT_FOR)
    assert "torch is not installed" in judge().reason
