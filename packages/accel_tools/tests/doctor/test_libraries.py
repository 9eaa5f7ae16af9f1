"""The search for missing libraries, on libraries that gcc builds, compared with ldd."""

import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests.libraries import COMPILER, Libraries

from accel_core import Backend, Provenance, Reason, Status, Verdict, Why
from accel_core.hardware import vendors
from accel_tools.doctor import libraries as libraries_under_test
from accel_tools.doctor.libraries import (
    NOT_FOUND,
    UnmetDependency,
    find_unmet_dependencies,
)
from accel_tools.doctor.topics import candidates
from accel_tools.doctor.vendor_package import (
    describe_unmet,
)

on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ELF is Linux's format"
)
with_gcc = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"),
    reason="gcc builds ELF here",
)


@pytest.fixture
def built(tmp_path):
    return Libraries(tmp_path)


def names(unmet):
    return {u.name for u in unmet}


def ldd_misses(path):
    said = subprocess.run(
        ["ldd", path], capture_output=True, text=True, check=False
    ).stdout
    return {line.split()[0] for line in said.splitlines() if "not found" in line}


@with_gcc
def test_what_is_missing_is_what_ldd_misses_directly_and_through_others(
    built, monkeypatch
):
    built.build("gone/libgone.so")
    built.build("gone/libfar.so")
    built.build("package/lib/libinner.so", "gone/libfar.so")
    extension = built.build(
        "package/_C.so",
        "package/lib/libinner.so",
        "gone/libgone.so",
        flags=("-Wl,-rpath,$ORIGIN/lib",),
    )
    # ldd finds them as the loader does: now in LD_LIBRARY_PATH, then nowhere.
    gone = str(built.root / "gone")
    monkeypatch.setenv("LD_LIBRARY_PATH", gone)
    assert (
        ldd_misses(extension)
        == names(find_unmet_dependencies([extension], os.environ))
        == set()
    )
    monkeypatch.delenv("LD_LIBRARY_PATH")
    unmet = list(find_unmet_dependencies([extension], os.environ))
    assert ldd_misses(extension) == names(unmet) == {"libgone.so", "libfar.so"}
    inner = f"{built.root}/package/lib/libinner.so"
    assert {(u.name, u.needed_by, u.reason) for u in unmet} == {
        ("libgone.so", extension, "it is not found"), ("libfar.so", inner, "it is not found"),
    }  # fmt: skip
    # What is loaded before is there, wherever it lies.
    assert names(find_unmet_dependencies([extension], {}, [gone])) == set()


@with_gcc
@pytest.mark.parametrize("old", [True, False], ids=["rpath", "runpath"])
def test_an_rpath_counts_for_what_it_loads_in_turn_and_a_runpath_does_not(built, old):
    built.build("lib/libdeep.so")
    built.build("lib/libnear.so", "lib/libdeep.so")
    tags = "-Wl,--disable-new-dtags" if old else "-Wl,--enable-new-dtags"
    extension = built.build(
        "_C.so", "lib/libnear.so", flags=("-Wl,-rpath,$ORIGIN/lib", tags)
    )
    expected = set() if old else {"libdeep.so"}
    assert (
        ldd_misses(extension)
        == names(find_unmet_dependencies([extension], {}))
        == expected
    )


@with_gcc
def test_versions_that_the_library_found_does_not_bring(built):
    both = "V1 { global: old; };\nV2 { global: base; } V1;\n"
    built.build("lib/libbase.so", versions=both)
    extension = built.build(
        "_C.so", "lib/libbase.so", flags=("-Wl,-rpath,$ORIGIN/lib",)
    )
    assert list(find_unmet_dependencies([extension], {})) == []
    older = built.build("lib/libbase.so", versions="V1 { global: base; };\n")
    (unmet,) = find_unmet_dependencies([extension], {})
    assert unmet.name == "libbase.so"
    assert unmet.reason == f"{older} lacks V2"


@with_gcc
def test_libraries_of_another_architecture_are_passed_over_and_cycles_end(built):
    built.build("lib/liba.so")
    built.build("lib/libb.so", "lib/liba.so")
    built.build(
        "lib/liba.so", "lib/libb.so", flags=("-Wl,-rpath,$ORIGIN",)
    )  # each needs the other
    extension = built.build(
        "_C.so", "lib/liba.so", flags=("-Wl,-rpath,$ORIGIN/lib:$ORIGIN/other",)
    )
    # libb.so names no folder: by then liba.so is loaded, and known by its name.
    assert (
        ldd_misses(extension)
        == names(find_unmet_dependencies([extension], {}))
        == set()
    )
    foreign = bytearray(Path(built.root, "lib/liba.so").read_bytes())
    struct.pack_into("<H", foreign, 18, 183)  # e_machine: AArch64
    Path(built.root, "lib/liba.so").write_bytes(foreign)
    (unmet,) = find_unmet_dependencies([extension], {})
    assert re.fullmatch(
        f"{built.root}/lib/liba.so is for 64-bit AArch64, not 64-bit .*", unmet.reason
    )
    Path(built.root, "lib/liba.so").write_bytes(b"\x7fELF, and no more")
    (unmet,) = find_unmet_dependencies([extension], {})
    assert f"{built.root}/lib/liba.so cannot be loaded: " in unmet.reason


@on_linux
def test_a_file_that_is_no_library_is_reported_as_unreadable(tmp_path):
    cut = tmp_path / "cut.so"
    for content in (
        b"no library at all, but long enough",
        Path(sys.executable).read_bytes()[:3000],
        b"",
    ):
        cut.write_bytes(content)
        (unmet,) = find_unmet_dependencies([str(cut)], {})
        assert unmet.name == str(cut)
        assert unmet.needed_by == ""
        assert unmet.reason.startswith("it cannot be read: ")
    (unmet,) = find_unmet_dependencies([str(tmp_path / "gone.so")], {})
    assert unmet.reason == "it cannot be read: No such file or directory"


@with_gcc
def test_the_loaders_cache_is_searched(built, monkeypatch):
    if not libraries_under_test._read_loader_cache():
        pytest.skip("this system has no loader's cache, or no ldconfig")
    monkeypatch.setattr(libraries_under_test, "_DEFAULT_FOLDERS", ())
    extension = built.build("_C.so", flags=("-Wl,--no-as-needed", "-lc"))
    assert list(find_unmet_dependencies([extension], {})) == []
    monkeypatch.setattr(libraries_under_test, "_read_loader_cache", dict)
    assert names(find_unmet_dependencies([extension], {})) == {"libc.so.6"}


@on_linux
def test_without_pyelftools_nothing_is_known_and_the_next_step_is_given(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(libraries_under_test, "find_spec", lambda name: None)
    assert list(find_unmet_dependencies([str(tmp_path / "gone.so")], {})) == []
    install = vendors.install_command("accel-tools", extra="doctor")
    step = f"unknown, because pyelftools is not installed (to install it: {install})"
    assert describe_unmet(()) == step
    cause = "OSError: libhccl.so: cannot open shared object file"
    backend = Backend("npu", 700, "npu", vendor_import="x")
    failed = Verdict(
        "npu",
        Provenance("accel-npu", "1"),
        backend,
        status=Status.BROKEN,
        why=Why(
            Reason.VENDOR_FAILS,
            {"what": "torch_npu failed", "cause": cause, "step": ""},
        ),
        cause=cause,
    )
    unmet = [
        UnmetDependency(name, "_C.so", NOT_FOUND)
        for name in ("libhccl.so", "libascendcl.so")
    ]
    unmet.append(UnmetDependency("librt.so", "_C.so", "/lib/librt.so lacks RT_2"))
    assert list(candidates._missing_library_clauses(failed, unmet)) == [
        f"other missing libraries are {step}"
    ]
    monkeypatch.undo()
    assert list(candidates._missing_library_clauses(failed, unmet)) == [
        "libascendcl.so is missing too",
        "/lib/librt.so lacks RT_2",
    ]
    without_library = replace(failed, cause="ValueError: no")
    assert list(candidates._missing_library_clauses(without_library, [])) == []
