"""Where our distributions come from: what `pip install` is given."""

import json
import re
from pathlib import Path

import pytest

from accel_core import packages
from accel_core.hardware import vendors
from accel_core.hardware.vendors import (
    command_with_its_package,
    install_command,
    reinstall_command,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def origin(monkeypatch):
    """Give the installed accel-core this record of where it came from."""

    def given(record):
        text = json.dumps(record) if record else ""
        monkeypatch.setattr(packages, "read", lambda *_: text)
        vendors._origin.cache_clear()

    yield given
    vendors._origin.cache_clear()


@pytest.mark.parametrize("editable", [True, False])
def test_a_checkout_gives_its_folders(origin, editable):
    origin({"url": ROOT.as_uri(), "dir_info": {"editable": True} if editable else {}})
    npu = f"{ROOT}/plugins/accel_npu"
    assert install_command("accel-npu") == f"pip install {npu}"
    assert (
        install_command("accel-npu", extra="vendor") == f"pip install '{npu}[vendor]'"
    )
    upgrade = install_command(
        "accel-tools", "accel-core", version="0.1.0", option="--upgrade"
    )
    assert upgrade == f"pip install --upgrade {ROOT}/packages/accel_tools {ROOT}"
    assert install_command("accel-acme", "torch") == "pip install accel-acme torch"


def test_a_checkout_gives_what_else_is_missing_too(origin, monkeypatch):
    """Alone, accel-tools has pip look for accel-train in a registry, where anyone may have put one."""
    origin({"url": ROOT.as_uri(), "dir_info": {}})
    monkeypatch.setattr(packages, "version", {"accel-train": "0.1.0"}.get)
    tools = f"{ROOT}/packages/accel_tools"
    assert install_command("accel-tools") == f"pip install {tools}"
    testing = install_command("accel-testing", extra="new")
    assert testing == f"pip install {tools} '{ROOT}/packages/accel_testing[new]'"
    monkeypatch.setattr(packages, "version", lambda _: None)
    assert (
        install_command("accel-tools")
        == f"pip install {ROOT}/packages/accel_train {tools}"
    )


def test_what_a_distribution_of_ours_needs_is_in_the_table():
    direct = {}
    for name, folder in vendors.FOLDERS.items():
        text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
        listed = text.partition("\ndependencies = [")[2].partition("]\n")[0]
        direct[name] = set(re.findall(r'"(accel-[a-z]+)[=>]=', listed)) - {"accel-core"}
    for name, needed in direct.items():
        indirect = {other for need in needed for other in direct[need]}
        assert needed | indirect == set(
            vendors.FIRST_PARTY_REQUIREMENTS.get(name, ())
        ), name


def test_every_distribution_of_ours_is_where_the_table_says():
    folders = {path.parent for path in ROOT.glob("p*/*/pyproject.toml")} | {ROOT}
    assert {ROOT / folder for folder in vendors.FOLDERS.values()} == folders


def test_a_repository_gives_its_commit(origin):
    vcs = {"vcs": "git", "commit_id": "c0ffee"}
    origin({"url": "https://example.org/accel.git", "vcs_info": vcs})
    at = "git+https://example.org/accel.git@c0ffee#subdirectory=plugins/accel_npu"
    assert (
        install_command("accel-npu", extra="vendor")
        == f"pip install 'accel-npu[vendor] @ {at}'"
    )


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
    assert install_command("accel-npu") == "pip install accel-npu"
    pinned = install_command("accel-testing", extra="new", version="0.1.0")
    assert pinned == "pip install 'accel-testing[new]==0.1.0'"


@pytest.mark.parametrize("has_tools", [True, False])
def test_accel_setup_comes_behind_the_installation_of_its_package(
    origin, monkeypatch, has_tools
):
    origin(None)
    monkeypatch.setattr(vendors, "_has_accel_tools", lambda: has_tools)
    before = "" if has_tools else "pip install accel-tools && "
    assert command_with_its_package("accel setup") == f"{before}accel setup"
    assert command_with_its_package("accel setup npu") == f"{before}accel setup npu"
    for other in (
        "pip install torch-npu",
        "",
        "torch_mlu is incompatible with this torch: run `accel setup mlu`",
    ):
        assert command_with_its_package(other) == other


def test_a_distribution_is_installed_again_from_where_it_came(origin, tmp_path):
    again = "pip install --force-reinstall"
    origin({"url": tmp_path.as_uri(), "dir_info": {}})
    assert reinstall_command("accel-acme") == f"{again} --no-deps {tmp_path}"
    origin({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert reinstall_command("accel-acme") == f"{again} accel-acme"
    origin(None)
    assert reinstall_command("accel-acme") == f"{again} accel-acme"
