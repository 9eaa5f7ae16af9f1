"""Files of an installed package that are missing, incomplete or unreadable, and mounts without `exec`."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from accel_tools.doctor.damage import (
    find_damage,
    find_damage_of_import,
    find_noexec_mount,
)

TEXT = "value = 1\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution `torch` of two modules; returns the folder of its package."""
    folder = tmp_path / "torch"
    folder.mkdir()
    metadata = tmp_path / "torch-2.9.0+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cpu\n"
    )
    rows = ["torch-2.9.0+cpu.dist-info/RECORD,,"]
    for name in ("__init__.py", "library.so"):
        (folder / name).write_text(TEXT)
        rows.append(f"torch/{name},sha256=x,{len(TEXT)}")
    (metadata / "RECORD").write_text("\n".join(rows))
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_whole_package_has_no_damage(installed):
    assert find_damage("torch") is None


def test_a_missing_file_is_named(installed):
    (installed / "__init__.py").unlink()
    found = find_damage("torch")
    assert found.what == "torch 2.9.0+cpu is damaged: torch/__init__.py is missing"


def test_an_incomplete_file_is_named_with_the_command_for_this_build(installed):
    (installed / "library.so").write_text("v")
    found = find_damage("torch")
    assert found.what.endswith("torch/library.so has 1 bytes instead of 10")
    assert found.step == (
        "pip install --force-reinstall --no-deps torch==2.9.0+cpu "
        "--index-url https://download.pytorch.org/whl/cpu"
    )


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file"
)
def test_a_file_that_this_user_may_not_read_is_named(installed):
    (installed / "library.so").chmod(0)
    found = find_damage("torch")
    assert found.what == "this user lacks permission to read torch/library.so"
    assert found.step == f"run as the owner of the files: chmod -R a+rX {installed}"


def test_a_source_file_without_its_content_is_named_after_a_syntax_error(installed):
    record = installed.parent / "torch-2.9.0+cpu.dist-info" / "RECORD"
    digest = hashlib.sha256(TEXT.encode()).digest()
    encoded = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    record.write_text(record.read_text().replace("sha256=x", f"sha256={encoded}"))
    failure = "SyntaxError: source code string cannot contain null bytes"
    assert find_damage_of_import("torch", failure) is None
    (installed / "__init__.py").write_bytes(bytes(len(TEXT)))  # a power failure
    found = find_damage_of_import("torch", failure)
    assert found.what == (
        "torch/__init__.py of torch 2.9.0+cpu does not have its installed content"
    )
    assert find_damage_of_import("torch", "ImportError: no") is None


def test_an_init_file_in_the_stubs_of_an_extension_that_hides_it_is_named(installed):
    record = installed.parent / "torch-2.9.0+cpu.dist-info" / "RECORD"
    extension = f"_C{EXTENSION_SUFFIXES[0]}"
    record.write_text(
        f"{record.read_text()}\ntorch/{extension},sha256=x,{len(TEXT)}"
        f"\ntorch/_C/__init__.pyi,sha256=x,{len(TEXT)}"
    )
    (installed / extension).write_text(TEXT)
    (installed / "_C").mkdir()
    (installed / "_C" / "__init__.pyi").write_text(TEXT)
    assert find_damage("torch") is None
    (installed / "_C" / "__init__.py").touch()
    found = find_damage("torch")
    assert found.what.startswith(f"torch/_C/__init__.py hides torch/{extension} of ")
    assert found.step == f"rm {installed}/_C/__init__.py"


def test_a_folder_of_an_older_version_that_hides_a_module_is_named(installed):
    record = installed.parent / "torch-2.9.0+cpu.dist-info" / "RECORD"
    record.write_text(f"{record.read_text()}\ntorch/types.py,sha256=x,{len(TEXT)}")
    (installed / "types.py").write_text(TEXT)
    assert find_damage("torch") is None
    (installed / "types").mkdir()
    (installed / "types" / "__init__.py").write_text("")
    found = find_damage("torch")
    assert found.what == (
        "torch/types/__init__.py hides torch/types.py of torch 2.9.0+cpu, although it is "
        "not a file of this version"
    )
    assert found.step == f"remove the folder {installed / 'types'}"


def test_damage_of_a_required_package_is_named_if_the_error_names_its_module(installed):
    site = installed.parent
    with (site / "torch-2.9.0+cpu.dist-info" / "METADATA").open("a") as file:
        file.write("Requires-Dist: needed-one (>=1)\n")
    metadata = site / "needed_one-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: needed-one\nVersion: 1.0\n"
    )
    (metadata / "RECORD").write_text("needed_one.py,sha256=x,9\n")
    (site / "needed_one.py").write_text("")  # as after a full disk
    error = "ImportError: cannot import name 'x' from 'needed_one'"
    found = find_damage_of_import("torch", error)
    assert found.what.endswith("needed_one.py has 0 bytes instead of 9")
    assert found.step == "pip install --force-reinstall --no-deps needed-one==1.0"
    assert find_damage_of_import("torch", "OSError: no") is None


def test_of_a_package_that_is_not_installed_nothing_is_known():
    assert find_damage("no-such-distribution") is None


#: In a mount namespace of its own: a folder that is mounted with noexec.
MOUNTS = """
import subprocess, sys
from accel_tools.doctor.damage import explain_noexec_mounts
from accel_tools.doctor.records import Finding, Level, TopicResult
folder, kind = sys.argv[1:]
if kind == "tmpfs":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", folder], check=True)
else:
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,noexec", folder], check=True)
open(folder + "/library.so", "w").close()
error = f"OSError: {folder}/library.so: failed to map segment from shared object"
finding = Finding(Level.ERROR, "candidates.broken", error)
[topic] = explain_noexec_mounts([TopicResult("candidates", "Backends", (finding,), 0.0, "")])
[found] = topic.findings
print(found.proof_text, found.step, sep="\\n")
"""
UNSHARE = ["unshare", "--mount", "--map-root-user"]


def can_mount():
    if shutil.which("unshare") is None:
        return False
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace of its own")
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_library_on_a_mount_without_exec_has_the_mount_as_its_cause(tmp_path, kind):
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [*UNSHARE, sys.executable, "-c", MOUNTS, str(folder), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    proof, step = done.stdout.splitlines()
    assert proof == (
        f"Proven: library.so is on the file system {folder}, which is mounted with the option noexec"
    )
    assert step.startswith(f"run as root: mount -o remount,bind,exec {folder}; ")


def test_a_library_that_may_be_executed_has_another_cause(tmp_path):
    library = tmp_path / "library.so"
    library.touch()
    assert (
        find_noexec_mount(f"{library}: failed to map segment from shared object")
        is None
    )
