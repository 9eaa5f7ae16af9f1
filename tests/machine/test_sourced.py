"""Where our distributions come from: what `pip install` is told to take them from."""

import json
from pathlib import Path

import pytest

from accel_core._support import packages
from accel_core.machine import vendors
from accel_core.machine.vendors import sourced

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def origin(monkeypatch):
    """Give the installed accel-core this record of where it came from."""

    def given(record):
        text = json.dumps(record) if record else ""
        monkeypatch.setattr(packages, "read", lambda *_: text)
        vendors._place.cache_clear()

    yield given
    vendors._place.cache_clear()


NPU = "pip install 'accel-npu[vendor]', and install CANN"


@pytest.mark.parametrize("editable", [True, False])
def test_a_checkout_gives_its_folders(origin, editable):
    origin({"url": ROOT.as_uri(), "dir_info": {"editable": True} if editable else {}})
    assert sourced("pip install accel-npu") == f"pip install {ROOT}/plugins/accel_npu"
    assert sourced(NPU) == f"pip install '{ROOT}/plugins/accel_npu[vendor]', and install CANN"
    assert sourced("pip install accel-train.") == f"pip install {ROOT}/packages/accel_train."
    both = f"pip install --upgrade {ROOT}/packages/accel_tools {ROOT}"
    assert sourced("pip install --upgrade 'accel-tools==0.1.0' accel-core") == both
    for other in (
        "pip install accel-acme",
        "pip uninstall accel-npu",
        "accel-train brings it",
        "pip install torch",
    ):
        assert sourced(other) == other


def test_every_distribution_of_ours_is_where_the_table_says():
    folders = {path.parent for path in ROOT.glob("p*/*/pyproject.toml")} | {ROOT}
    assert {ROOT / folder for folder in vendors.FOLDERS.values()} == folders


def test_a_repository_gives_its_commit(origin):
    vcs = {"vcs": "git", "commit_id": "c0ffee"}
    origin({"url": "https://example.org/accel.git", "vcs_info": vcs})
    at = "git+https://example.org/accel.git@c0ffee#subdirectory=plugins/accel_npu"
    assert sourced(NPU) == f"pip install 'accel-npu[vendor] @ {at}', and install CANN"


@pytest.mark.parametrize(
    "record",
    [
        None,
        {"url": "file:///gone", "dir_info": {}},
        {"url": "https://x/y.whl"},
        {"url": "file:///wheels/accel_core-0.1.0-py3-none-any.whl", "archive_info": {}},
    ],
)
def test_a_registry_and_what_is_gone_give_the_name(origin, record):
    origin(record)
    assert sourced("pip install accel-npu") == "pip install accel-npu"
