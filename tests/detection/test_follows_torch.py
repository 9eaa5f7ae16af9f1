"""A vendor's package built for one release of torch is told from the torch that is here, by metadata."""

from __future__ import annotations

import sys

import pytest

from accel_core.backend import InTorch
from accel_core.detection import Status
from accel_core.detection.probe import Prober
from accel_core.detection.select import discover
from accel_core.settings import Settings

#: Such a package may end the process when it is imported beside another torch; nothing catches this either.
DEADLY = "raise KeyboardInterrupt('imported beside another torch')"


def judge(**options):
    (found,) = [c for c in discover() if c.name == "npu"]
    return Prober(Settings()).probe(found, (found,), **options)


@pytest.fixture
def vendor(torch_world):
    """`vendor(version)`: installs a vendor's package of that version, and a plugin that needs it."""

    def install(version, **fields):
        torch_world.distribution("torch-npu", version)
        torch_world.module("torch_npu", DEADLY)
        torch_world.backend(
            "npu", vendor_import="torch_npu", in_torch=InTorch(same_version=("torch-npu",)), **fields
        )

    return install


@pytest.mark.parametrize("pinned", [False, True])
def test_another_release_is_incompatible_and_is_not_imported(vendor, pinned):
    vendor("2.8.10+xpu")
    found = judge(pinned=pinned)
    assert (found.status, found.hint) == (Status.INCOMPATIBLE, "pip install 'torch==2.8.*'")
    assert (
        found.reason
        == "torch-npu 2.8.10+xpu works with torch 2.8 only, and torch 2.99.0+simulated is installed"
    )
    assert not {"torch", "torch_npu"} & set(sys.modules)


def test_the_plugins_own_way_out_stands_beside(vendor):
    vendor("2.8", install_hint="pip install torch-npu")
    assert judge().hint == "pip install 'torch==2.8.*', or: pip install torch-npu"


def test_the_same_release_goes_on_whatever_the_patch(vendor, torch_world):
    vendor("2.99.7.post1+cann")
    torch_world.module("torch_npu", "")
    assert judge().status is Status.USABLE


def test_without_metadata_nobody_knows_and_nothing_is_imported(torch_world):
    torch_world.module("torch_npu", DEADLY)
    torch_world.backend(
        "npu",
        vendor_import="torch_npu",
        in_torch=InTorch(same_version=("torch-npu",)),
        install_hint="do this",
    )
    found = judge()
    assert (found.status, found.reason, found.hint) == (
        Status.NOT_INSTALLED,
        "torch-npu is not installed",
        "do this",
    )


def test_without_torch_it_is_torch_that_is_missing(world):
    world.distribution("torch-npu", "2.8")
    world.module("torch_npu", "")
    world.backend("npu", vendor_import="torch_npu", in_torch=InTorch(same_version=("torch-npu",)))
    assert "torch is not installed" in judge().reason
