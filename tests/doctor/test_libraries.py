"""ELF headers and the search for libraries, on libraries that gcc builds; ldd is the judge."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from accel_testing.libraries import COMPILER, Libraries
from hypothesis import given, settings
from hypothesis import strategies as st

from accel_core.doctor.elf import architecture, read_elf
from accel_core.doctor.libraries import ld_cache, unmet_needs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is Linux's format")
with_gcc = pytest.mark.skipif(COMPILER is None, reason="gcc builds the libraries of this test")


@pytest.fixture
def libraries(tmp_path: Path) -> Libraries:
    return Libraries(tmp_path)


def names(unmet):
    return {u.name for u in unmet}


def ldd_misses(path: str) -> set[str]:
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return {line.split()[0] for line in said.splitlines() if "not found" in line}


@with_gcc
def test_what_is_missing_is_what_ldd_misses_directly_and_through_others(libraries, monkeypatch):
    libraries.build("gone/libgone.so")
    libraries.build("gone/libfar.so")
    libraries.build("package/lib/libinner.so", "gone/libfar.so")
    extension = libraries.build(
        "package/_C.so", "package/lib/libinner.so", "gone/libgone.so", flags=("-Wl,-rpath,$ORIGIN/lib",)
    )
    elf = read_elf(extension)
    assert (elf.soname, elf.rpath + elf.runpath) == ("_C.so", ("$ORIGIN/lib",))
    assert elf.needed[:2] == ("libinner.so", "libgone.so")
    # ldd finds them as the loader does: now in LD_LIBRARY_PATH, then nowhere.
    gone = str(libraries.root / "gone")
    monkeypatch.setenv("LD_LIBRARY_PATH", gone)
    assert ldd_misses(extension) == names(unmet_needs([extension], os.environ)) == set()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    unmet = unmet_needs([extension], os.environ)
    assert ldd_misses(extension) == names(unmet) == {"libgone.so", "libfar.so"}
    inner = f"{libraries.root}/package/lib/libinner.so"
    assert {(u.name, u.needed_by, u.why) for u in unmet} == {
        ("libgone.so", extension, "it is not found"), ("libfar.so", inner, "it is not found"),
    }  # fmt: skip
    # What is loaded before is there, wherever it lies.
    assert names(unmet_needs([extension], {}, [gone])) == set()


@with_gcc
@pytest.mark.parametrize("old", [True, False], ids=["rpath", "runpath"])
def test_an_rpath_counts_for_what_it_loads_in_turn_and_a_runpath_does_not(libraries, old):
    libraries.build("lib/libdeep.so")
    libraries.build("lib/libnear.so", "lib/libdeep.so")
    tags = "-Wl,--disable-new-dtags" if old else "-Wl,--enable-new-dtags"
    extension = libraries.build("_C.so", "lib/libnear.so", flags=("-Wl,-rpath,$ORIGIN/lib", tags))
    expected = set() if old else {"libdeep.so"}
    assert ldd_misses(extension) == names(unmet_needs([extension], {})) == expected


@with_gcc
def test_versions_that_the_library_found_does_not_bring(libraries):
    both = "V1 { global: old; };\nV2 { global: base; } V1;\n"
    libraries.build("lib/libbase.so", versions=both)
    extension = libraries.build("_C.so", "lib/libbase.so", flags=("-Wl,-rpath,$ORIGIN/lib",))
    assert read_elf(extension).requires["libbase.so"] == ("V2",)
    assert {"V1", "V2"} <= read_elf(str(libraries.root / "lib/libbase.so")).provides
    assert unmet_needs([extension], {}) == ()
    older = libraries.build("lib/libbase.so", versions="V1 { global: base; };\n")
    (unmet,) = unmet_needs([extension], {})
    assert (unmet.name, unmet.why) == ("libbase.so", f"{older} lacks V2")


@with_gcc
def test_libraries_of_another_architecture_are_passed_over_and_cycles_end(libraries):
    libraries.build("lib/liba.so")
    libraries.build("lib/libb.so", "lib/liba.so")
    libraries.build("lib/liba.so", "lib/libb.so", flags=("-Wl,-rpath,$ORIGIN",))  # each needs the other
    extension = libraries.build("_C.so", "lib/liba.so", flags=("-Wl,-rpath,$ORIGIN/lib:$ORIGIN/other",))
    # libb.so names no folder: by then liba.so is loaded, and known by its name.
    assert ldd_misses(extension) == names(unmet_needs([extension], {})) == set()
    foreign = bytearray(Path(libraries.root, "lib/liba.so").read_bytes())
    struct.pack_into("<H", foreign, 18, 183)  # e_machine: AArch64
    Path(libraries.root, "lib/liba.so").write_bytes(foreign)
    own = architecture(extension)
    (unmet,) = unmet_needs([extension], {})
    assert unmet.why == f"{libraries.root}/lib/liba.so is for {own.rpartition(' ')[0]} AArch64, not {own}"
    Path(libraries.root, "lib/liba.so").write_bytes(b"\x7fELF, and no more")
    (unmet,) = unmet_needs([extension], {})
    assert unmet.why.endswith("liba.so cannot be loaded: it ends within its first header")


def an_extension() -> str:
    """One that Python itself brings, or the program: real, small, and everywhere."""
    folder = Path(sysconfig.get_path("platstdlib"), "lib-dynload")
    return str(next(iter(sorted(folder.glob("*.so"), key=lambda file: file.stat().st_size)), sys.executable))


def test_a_real_file_cut_anywhere_is_an_error_that_says_so(tmp_path):
    whole = Path(an_extension()).read_bytes()
    elf = read_elf(an_extension())
    assert elf.needed or elf.soname
    cut = tmp_path / "cut.so"
    outcomes = set()
    for length in [*range(1200), *range(1200, len(whole), 997)]:
        cut.write_bytes(whole[:length])
        try:
            outcomes.add(read_elf(str(cut)) == elf)
        except ValueError as error:
            outcomes.add(str(error).partition(" within")[0])
    assert outcomes <= {True, "it ends"}
    assert "it ends" in outcomes


def test_what_is_no_library_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(OSError, match="no regular file"):
            read_elf(str(path))
    with pytest.raises(OSError, match="No such file"):
        read_elf(str(tmp_path / "nothing"))
    (tmp_path / "text").write_bytes(b"no library at all, but long enough")
    with pytest.raises(ValueError, match="it is no ELF file"):
        read_elf(str(tmp_path / "text"))
    assert unmet_needs([str(tmp_path / "text")], {}) == (
        (str(tmp_path / "text"), "", "it cannot be read: it is no ELF file"),
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)
)
def test_a_damaged_file_is_read_or_an_error_and_never_takes_long(tmp_path_factory, changes):
    data = bytearray(Path(an_extension()).read_bytes())
    for at, new in changes:
        at %= min(len(data), 4096) if at % 2 else len(data)  # headers more often than code
        data[at : at + len(new)] = new
    file = tmp_path_factory.getbasetemp() / "damaged.so"
    file.write_bytes(data)
    start = time.perf_counter()
    with contextlib.suppress(ValueError):
        read_elf(str(file))
    assert time.perf_counter() - start < 2


def test_the_loaders_cache_is_read_as_ldconfig_prints_it(tmp_path):
    program = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if program is None or not Path("/etc/ld.so.cache").exists():
        pytest.skip("this system has no loader's cache, or no ldconfig")
    said = subprocess.run([program, "-p"], capture_output=True, text=True, check=True).stdout
    theirs: dict[str, list[str]] = {}
    for line in said.splitlines():
        name, arrow, path = line.partition(" => ")
        if arrow:
            theirs.setdefault(name.split()[0], []).append(path)
    assert ld_cache() == theirs
    whole = Path("/etc/ld.so.cache").read_bytes()
    (tmp_path / "etc").mkdir()
    for length in (0, 10, 40, len(whole) // 20):
        (tmp_path / "etc/ld.so.cache").write_bytes(whole[:length])
        assert ld_cache(str(tmp_path)) == {}
    (tmp_path / "etc/ld.so.cache").write_bytes(whole[:-100])  # whose last names are cut off
    assert ld_cache(str(tmp_path)).keys() < theirs.keys()


@with_gcc
def test_more_places_than_can_be_looked_in_end_the_search(libraries, monkeypatch):
    monkeypatch.setattr("accel_core.doctor.libraries._MOST_LOOKS", 50)
    libraries.build("gone/libgone.so")
    many = ":".join(f"/nowhere/{i}" for i in range(100))
    extension = libraries.build("_C.so", "gone/libgone.so", flags=(f"-Wl,-rpath,{many}",))
    found = unmet_needs([extension, libraries.build("_D.so")], {})
    assert [u.why for u in found] == [
        *["too many places would have to be looked in"] * len(read_elf(extension).needed),
        "it was not looked into: there are too many before it",
    ]
