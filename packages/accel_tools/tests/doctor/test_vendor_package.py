"""A vendor's package as it lies on disk: what it fits, and which libraries are missing; ldd is the judge."""

import importlib
import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.libraries import COMPILER, Libraries

from accel_core import Backend, Provenance, Reason, Status, TorchBuild, Verdict, Why
from accel_core.hardware import vendors
from accel_tools.doctor import libraries as libraries_under_test
from accel_tools.doctor import vendor_package as under_test
from accel_tools.doctor.installed_package import find_vendor_package
from accel_tools.doctor.libraries import (
    NOT_FOUND,
    UnmetDependency,
    find_unmet_dependencies,
)
from accel_tools.doctor.topics import candidates
from accel_tools.doctor.vendor_package import (
    describe_unmet,
    find_extension_modules,
    find_misfits,
    package_unmet_dependencies,
)

# ---------------------------------------------------------------------------- libraries
# The search for libraries that are missing, on libraries that gcc builds; ldd is the judge.


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
    step = f"unknown, because pyelftools is not installed: {install}"
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
    also = "; libascendcl.so is missing too; /lib/librt.so lacks RT_2"
    assert (
        candidates._missing_library_clauses(failed, unmet)
        == f"; other missing libraries are {step}"
    )
    monkeypatch.undo()
    assert candidates._missing_library_clauses(failed, unmet) == also
    assert (
        candidates._missing_library_clauses(replace(failed, cause="ValueError: no"), [])
        == ""
    )


# ---------------------------------------------------------------------------- vendor package
# A vendor's package as it lies on disk: its distribution, what it fits, what its libraries lack.


def install(world, name, version, module, *lines, tags=(), record=None):
    """A package whose metadata has `lines`, and whose wheel has `tags`."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{module.replace('.', '/')}/__init__.py": "",
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *lines,
                "",
            ]
        )
        + "\nRequires-Dist: torch<1\n",  # of the description
        f"{info}/WHEEL": "".join(f"Tag: {tag}\n" for tag in tags),
    }
    if record is not None:
        files[f"{info}/RECORD"] = record
    layouts._write(world.site, files)
    importlib.invalidate_caches()


def test_the_distribution_of_a_module_by_its_name_or_by_its_record(world):
    install(world, "vendor-card", "2.1", "vendor_card", "Requires-Dist: torch==2.1.*")
    install(world, "other", "1.0", "other")
    found = find_vendor_package("vendor_card")
    assert str(found) == "vendor-card 2.1"
    assert found.requires == ("torch==2.1.*",)
    # Of a namespace several distributions have a part; a part that lies elsewhere is not theirs.
    layouts._write(world.site, {"space/a/__init__.py": "", "space/b/__init__.py": ""})
    install(world, "aaa", "1", "aaa", record="space/ab/__init__.py,,\n")
    install(world, "bbb", "2", "bbb", record="space/b/__init__.py,sha256=x,1\n")
    assert str(find_vendor_package("space.b")) == "bbb 2"
    assert str(find_vendor_package("space.a")) == "space.a"  # nobody's
    assert find_vendor_package("nowhere") is None


FITS = [
    ("2.1", "Requires-Dist: torch==2.13.0.*", "2.13.0+cpu", []),
    ("2.1", "Requires-Dist: torch==2.1.*", "2.13.0", ["card 2.1 requires torch==2.1.*, but torch 2.13.0"]),
    ("2.1", "Requires-Dist: torch<2; extra == 'old'", "2.13.0", []),
    ("2.1", "Requires-Dist: torch !!", "2.13.0", []),
    ("2.1", "Requires-Dist: torch<2", "our-own", []),
    ("2.13.10+xpu", "Requires-Dist: numpy", "2.13.0+cpu", ["card 2.13.10+xpu was built for a +xpu"]),
    ("2.13.10+xpu", "Requires-Dist: numpy", "2.13.0+xpu", []),
    ("2.13.10+git1234", "Requires-Dist: numpy", "2.13.0+cpu", []),
]  # fmt: skip


@pytest.mark.parametrize(("version", "line", "torch", "expected"), FITS)
def test_whether_it_fits_torch(world, monkeypatch, version, line, torch, expected):
    install(world, "card", version, "card", line)
    monkeypatch.setattr(under_test, "torch_build", lambda: TorchBuild(torch))
    found = [what for what, _ in find_misfits(find_vendor_package("card"))]
    assert len(found) == len(expected)
    assert all(
        what.startswith(start) for what, start in zip(found, expected, strict=True)
    )


def test_whether_it_fits_this_python(world):
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    install(world, "card", "1", "card", tags=("cp27-cp27m-win32",))
    ((what, step),) = find_misfits(find_vendor_package("card"))
    assert what.startswith(
        "card 1 was built for cp27-cp27m-win32, but this is Python 3."
    )
    assert step == "pip install --force-reinstall 'card'"
    install(
        world,
        "card",
        "1",
        "card",
        tags=("cp27-cp27m-win32", f"{own}-none-any", "py3-none-any"),
    )
    assert list(find_misfits(find_vendor_package("card"))) == []


@with_gcc
def test_libraries_that_the_extension_needs(world):
    built = Libraries(world.site)
    install(world, "card", "1", "card")
    for name in (
        "torch/lib/libtorch.so",
        "gone/libcardrt.so",
        "gone/libcardhal.so",
        "card/lib/libbypath.so",
    ):
        built.build(name)
    (world.site / "torch/__init__.py").touch()
    built.build(
        "card/lib/libcard.so",
        "gone/libcardhal.so",
        "torch/lib/libtorch.so",
        "gone/libcardrt.so",
    )
    needs = (
        "card/lib/libcard.so",
        "gone/libcardrt.so",
        "torch/lib/libtorch.so",
        "card/lib/libbypath.so",
    )
    extension = built.build("card/_C.so", *needs, flags=("-Wl,-rpath,$ORIGIN/lib",))
    for deeper in (
        "card/lib/deeper/_D.so",
        "card/lib/extra.cpython-27-x.so",
        "card/lib/libother.so",
    ):
        built.build(deeper)
    importlib.invalidate_caches()
    package = find_vendor_package("card")
    assert find_extension_modules(package.folder) == [extension]
    # torch's are loaded before.
    told = describe_unmet(package_unmet_dependencies(package, {}))
    assert told == "libcardrt.so (for _C.so); libcardhal.so (for libcard.so)"
    assert (
        package_unmet_dependencies(
            package, {"LD_LIBRARY_PATH": str(world.site / "gone")}
        )
        == ()
    )
