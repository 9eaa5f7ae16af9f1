"""What `accel new` refuses, before anything is asked or written. tests/wheels has what it writes."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import run_python
from click.testing import CliRunner

from accel_core.cli import accel
from accel_core.hardware import vendors
from accel_testing.commands.new import SERVED_BY_TORCH, TORCH_TYPES


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def refused(*words):
    """The status of `accel new`, and its error; nothing was written."""
    before = sorted(os.listdir())
    done = CliRunner().invoke(accel, ["new", *words, "--defaults"])
    assert done.stdout == ""
    assert sorted(os.listdir()) == before
    return done.exit_code, done.stderr.partition("Error: ")[2]


@pytest.mark.parametrize(
    "name", ["Zing", "1st", "z-1", "z.ing", "z__1", "_z", "z_", "import", "ä", "z" * 41]
)
def test_what_can_be_no_name_is_refused(name):
    status, error = refused(name)
    assert status == 2
    assert f"{name!r} is not a valid backend name; expected lower-case letters" in error


OF_TORCH = (
    "torch has a device type with this name; to write a plugin for this device type of torch, add "
    "--no-private-use1, or --private-use1 if a package renames PrivateUse1 to this name."
)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["npu"],
            "accel-npu is installed and provides this backend. Give another name",
        ),
        (["core"], "accel_core is one of accel's packages"),
        (["cpu"], "accel-core is installed and provides this backend"),
        (
            ["mtia", "--private-use1"],
            "torch has a device type with this name, so PrivateUse1 cannot be renamed to it; to",
        ),
        (["vulkan"], OF_TORCH),
        (["zing"], "other-zing is installed and provides this backend"),
    ],
)
def test_a_name_that_somebody_has_is_refused(words, reason, tmp_path, monkeypatch):
    groups = {"accel.backends": {"zing": "other_zing"}}
    monkeypatch.syspath_prepend(
        str(layouts.dist_info(tmp_path / "site", "other-zing", "1.0", groups))
    )
    status, error = refused(*words)
    assert status == 2
    assert error.startswith(f"{words[0]!r} is in use: {reason}"), error


def test_a_folder_that_is_there_is_left_alone():
    Path("accel-zing").mkdir()
    status, error = refused("zing")
    assert status == 2
    assert error.startswith("accel-zing already exists, and was not changed.")


def test_a_file_in_the_place_of_the_folder_is_left_alone():
    Path("file").touch()
    _, error = refused("zing", "--output", "file")
    assert error.startswith("file already exists")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--output", "a/b", "Create it first: mkdir -p "),
        ("--author", "a\nb", "expected one line of plain text"),
        ("--license", "GPL", "'GPL' is not one of 'Apache-2.0'"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused(option, value, message):
    _, error = refused("zing", option, value)
    assert message in error


def test_without_copier_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "copier", None)
    step = vendors.install_command("accel-testing", extra="new")
    status, error = refused("zing")
    assert status == 1
    assert (
        error == f"accel new needs copier, which is not installed. Next step: {step}\n"
    )


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_the_list_of_torchs_device_types_is_torchs():
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.device("nobody")
    (listed,) = re.findall(
        r"Expected one of (.*), privateuseone device type", str(caught.value)
    )
    assert tuple(listed.split(", ")) == TORCH_TYPES


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("words", [["nn"], ["zing", "--torch-module", "nn"]])
def test_a_module_of_torchs_own_is_refused(words):
    _, error = refused(*words)
    assert error.startswith("torch.nn is a module of torch")


#: torch renames it once in a process: each name in a fork of its own.
RENAMING = """
import os, torch
for name in NAMES:
    if os.fork() == 0:
        try:
            torch.utils.rename_privateuse1_backend(name)
        except RuntimeError as error:
            assert "with in-tree device name" in str(error)
            print(name, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(
    find_spec("torch") is None or not hasattr(os, "fork"),
    reason="needs torch and forks",
)
def test_torch_renames_its_slot_to_all_but_what_it_serves_itself():
    code = RENAMING.replace("NAMES", repr(TORCH_TYPES))
    done = run_python(["-c", code], os.environ)
    assert sorted(done.stdout.split()) == sorted(SERVED_BY_TORCH), done.stderr


def test_a_name_of_torchs_that_a_package_renames_its_slot_to():
    """Packages on the registry do: torch knows the type, and serves it not."""
    pytest.importorskip("copier")
    done = CliRunner().invoke(accel, ["new", "vulkan", "--private-use1", "--defaults"])
    assert done.exit_code == 0, done.stderr
    source = Path("accel-vulkan/src/accel_vulkan/__init__.py").read_text()
    assert 'device_type="vulkan"' in source
    assert "torch_integration=TorchIntegration(private_use1=True)" in source


def test_a_current_folder_that_was_deleted_is_told():
    Path.cwd().rmdir()
    done = CliRunner().invoke(accel, ["new", "zing", "--defaults"])
    assert done.exit_code == 2
    assert (
        "The current folder was deleted. Change to another folder, or give --output"
        in done.stderr
    )
