"""Entry points are what `importlib.metadata` finds, and one broken neighbour hides nobody."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.layouts import GROUP
from accel_tests.scanning import ONE, Finder, oracle, ours, site

from accel_core import packages
from accel_core.packages import entry_points as find_entry_points

NPU = ("npu", "accel_npu", "accel-npu", "1.0")


def test_the_first_distribution_on_the_path_counts(set_sys_path, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", {GROUP: {"npu": "old"}})
    layouts.dist_info(second, "Accel.NPU", "2.0", {GROUP: {"npu": "new"}})
    set_sys_path([first, second])
    assert ours() == [("npu", "old", "accel-npu", "1.0")]
    assert oracle() == [("npu", "old", "accel-npu", "1.0")]
    set_sys_path([second, first])
    assert ours() == [("npu", "new", "Accel.NPU", "2.0")]
    assert oracle() == [("npu", "new", "Accel.NPU", "2.0")]


def test_groups_are_kept_apart(set_sys_path, tmp_path):
    layouts.dist_info(
        site(tmp_path), "both", "1.0", {GROUP: {"a": "m"}, "torch.backends": {"b": "n"}}
    )
    set_sys_path([tmp_path / "site"])
    assert [e.name for e in find_entry_points(GROUP)] == ["a"]
    assert [e.name for e in find_entry_points("torch.backends")] == ["b"]


#: What becomes of the file. On the second the standard library's reader fails, in some releases.
DAMAGE = {
    "not UTF-8": lambda file: file.write_bytes(b"[accel.backends]\nx = \xff\n"),
    "a line without a module": lambda file: file.write_text("[accel.backends]\njunk\n"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_neighbour_whose_metadata_is_broken_hides_nobody(
    set_sys_path, tmp_path, caplog, damage
):
    """One broken distribution must not disable all the others."""
    root = site(tmp_path)
    for name in ("aaa", "zzz"):
        layouts.dist_info(root, name, "1.0", {"console_scripts": {"x": "y"}})
        file = root / f"{name}-1.0.dist-info/entry_points.txt"
        file.unlink()
        DAMAGE[damage](file)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    set_sys_path([root])
    assert NPU in ours()
    if damage == "not UTF-8":
        assert "aaa 1.0 is skipped because its metadata cannot be read" in caplog.text


def test_paths_that_hold_nothing_are_passed_over(set_sys_path, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    (tmp_path / "text.zip").write_text("no archive")
    set_sys_path([tmp_path / "missing", tmp_path / "text.zip", root])
    assert ours() == [NPU]
    assert oracle() == [NPU]


@pytest.mark.parametrize("metadata_bytes", [None, b"", b"Name: \xff\n"])
def test_a_distribution_without_a_name_is_passed_over_alone(
    set_sys_path, tmp_path, metadata_bytes
):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    file = root / "accel_mlu-3.0.dist-info" / "METADATA"
    file.unlink() if metadata_bytes is None else file.write_bytes(metadata_bytes)
    set_sys_path([root])
    assert ours() == [NPU]


def test_a_newer_release_without_the_entry_point_hides_the_older_one(
    set_sys_path, tmp_path
):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "2.0", {"console_scripts": {"x": "y"}})
    layouts.dist_info(second, "Accel.NPU", "1.0", ONE)
    set_sys_path([first, second])
    assert ours() == []
    assert oracle() == []


def test_a_finder_that_fails_hides_nobody(set_sys_path, tmp_path, monkeypatch):
    class Failing(Finder):
        def find_distributions(self, context=None):
            raise RuntimeError("no distributions today")

    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    set_sys_path([tmp_path / "site"])
    monkeypatch.setattr(sys, "meta_path", [Failing(tmp_path), *sys.meta_path])
    assert ours() == [NPU]


def _age(path, seconds):
    """Coarse clocks must not decide a test."""
    stamp = path.stat().st_mtime_ns + seconds * 10**9
    os.utime(path, ns=(stamp, stamp))


def test_an_installation_and_a_removal_are_noticed(set_sys_path, tmp_path):
    root = site(tmp_path)
    set_sys_path([root])
    assert ours() == []
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    _age(root, 10)
    assert ours() == [NPU]
    assert oracle() == [NPU]
    shutil.rmtree(root / "accel_npu-1.0.dist-info")
    _age(root, 20)
    assert ours() == []
    assert oracle() == []


def test_a_new_path_entry_and_a_new_finder_are_noticed(
    set_sys_path, tmp_path, monkeypatch
):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", ONE)
    layouts.dist_info(second, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    set_sys_path([first])
    assert [e.name for e in find_entry_points(GROUP)] == ["npu"]
    monkeypatch.setattr(
        sys, "meta_path", [*sys.meta_path, Finder(second / "accel_mlu-3.0.dist-info")]
    )
    assert [e.name for e in find_entry_points(GROUP)] == ["npu", "mlu"]


def test_an_entry_point_names_a_module_or_an_object_in_it():
    def point(value):
        return packages.Provenance("dist", "1", "x", value)

    assert point("os.path").load() is os.path
    assert point("os:path.join [extra]").load() is os.path.join
    assert point(" os.path :join").module == "os.path"
    assert point("").module == ""
    assert point(":x").module == ""


def test_the_version_of_a_distribution_that_is_missing_or_broken_is_none(world):
    layouts.dist_info(world.site, "good", "1.5")
    layouts.dist_info(world.site, "broken", "1.0")
    (world.site / "broken-1.0.dist-info" / "METADATA").write_bytes(
        b"Name: broken\nVersion: \xff\n"
    )
    world.set_path([world.site])
    assert packages.version("good") == "1.5"
    assert packages.version("absent-distribution") is None
    assert packages.version("") is None
    assert packages.version("broken") is None or isinstance(
        packages.version("broken"), str
    )
