"""Entry points are what `importlib.metadata` finds, and one broken neighbour hides nobody."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.layouts import GROUP
from accel_tests.scanning import ONE, Finder, oracle, ours, site

from accel_core._support import packages
from accel_core._support.packages import entry_points as find_entry_points
from accel_core.settings import entry_points

NPU = ("npu", "accel_npu", "accel-npu", "1.0")


def test_the_first_distribution_on_the_path_counts(only, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", {GROUP: {"npu": "old"}})
    layouts.dist_info(second, "Accel.NPU", "2.0", {GROUP: {"npu": "new"}})
    only([first, second])
    assert ours() == oracle() == [("npu", "old", "accel-npu", "1.0")]
    only([second, first])
    assert ours() == oracle() == [("npu", "new", "Accel.NPU", "2.0")]


def test_groups_are_kept_apart(only, tmp_path):
    layouts.dist_info(site(tmp_path), "both", "1.0", {GROUP: {"a": "m"}, "torch.backends": {"b": "n"}})
    only([tmp_path / "site"])
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
def test_a_neighbour_whose_metadata_is_broken_hides_nobody(only, tmp_path, caplog, damage):
    """USERS 8."""
    root = site(tmp_path)
    for name in ("aaa", "zzz"):
        layouts.dist_info(root, name, "1.0", {"console_scripts": {"x": "y"}})
        file = root / f"{name}-1.0.dist-info/entry_points.txt"
        file.unlink()
        DAMAGE[damage](file)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    assert NPU in ours()
    if damage == "not UTF-8":
        assert "aaa-1.0.dist-info is passed over, as its metadata cannot be read" in caplog.text


def test_paths_that_hold_nothing_are_passed_over(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    (tmp_path / "text.zip").write_text("no archive")
    only([tmp_path / "missing", tmp_path / "text.zip", root])
    assert ours() == oracle() == [NPU]


@pytest.mark.parametrize("metadata_bytes", [None, b"", b"Name: \xff\n"])
def test_the_folder_names_the_distribution_whatever_its_metadata_says(only, tmp_path, metadata_bytes):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    file = root / "accel_npu-1.0.dist-info" / "METADATA"
    file.unlink() if metadata_bytes is None else file.write_bytes(metadata_bytes)
    only([root])
    assert ours() == [NPU]


def test_a_finder_that_fails_hides_nobody(only, tmp_path, monkeypatch):
    class Failing(Finder):
        def find_distributions(self, context=None):
            raise RuntimeError("no distributions today")

    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    monkeypatch.setattr(sys, "meta_path", [Failing(tmp_path), *sys.meta_path])
    assert ours() == [NPU]


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_what_the_programs_signal_handler_raises_meanwhile_is_the_programs(only, tmp_path, monkeypatch):
    class Interrupted(Finder):
        def find_distributions(self, context=None):
            os.kill(os.getpid(), signal.SIGUSR1)
            return []

    def handler(*_):
        raise TimeoutError("the job's time is over")

    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "meta_path", [Interrupted(tmp_path), *sys.meta_path])
            with pytest.raises(TimeoutError):
                ours()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ours() == [NPU]


# ---------------------------------------------------------------------------- what the policy leaves


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({}, ["ours", "theirs", "evil"]),
        ({"ACCEL_BLOCK": "@evil"}, ["ours", "theirs"]),
        ({"ACCEL_BLOCK": "bad"}, ["ours", "theirs", "evil"]),  # a backend of it, and nothing else
        ({"ACCEL_BLOCK": "@accel-tools,@evil,@acme-tools"}, []),
        ({"ACCEL_ALLOW": "cpu"}, ["ours"]),
        ({"ACCEL_ALLOW": "cpu,bad"}, ["ours", "evil"]),
        ({"ACCEL_ALLOW": "bad@acme-tools,@Acme.Tools"}, ["ours", "theirs"]),
        ({"ACCEL_ALLOW": "bad", "ACCEL_BLOCK": "@evil"}, ["ours"]),
    ],
)
def test_code_of_every_group_is_asked_of_the_policy_and_ours_comes_first(only, tmp_path, variables, left):
    root = site(tmp_path)
    every = (
        ("acme-tools", "theirs", {}),
        ("evil", "evil", {GROUP: {"bad": "evil"}}),
        ("accel-tools", "ours", {}),
    )
    for name, module, more in every:
        layouts.dist_info(root, name, "1.0", {"accel.commands": {"doctor": module}, **more})
    only([root])
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        assert [e.value for e in entry_points("accel.commands")] == left


# ---------------------------------------------------------------------------- read once


def _age(path, seconds):
    """Coarse clocks must not decide a test."""
    stamp = path.stat().st_mtime_ns + seconds * 10**9
    os.utime(path, ns=(stamp, stamp))


def test_nothing_is_read_again_while_nothing_changed(only, tmp_path):
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    assert find_entry_points(GROUP) == find_entry_points("other") + find_entry_points(GROUP)
    before = packages._announcing.cache_info().misses
    find_entry_points(GROUP)
    assert packages._announcing.cache_info().misses == before


def test_an_installation_and_a_removal_are_noticed(only, tmp_path):
    root = site(tmp_path)
    only([root])
    assert ours() == []
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    _age(root, 10)
    assert ours() == oracle() == [NPU]
    shutil.rmtree(root / "accel_npu-1.0.dist-info")
    _age(root, 20)
    assert ours() == oracle() == []


def test_a_new_path_entry_and_a_new_finder_are_noticed(only, tmp_path, monkeypatch):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", ONE)
    layouts.dist_info(second, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    only([first])
    assert [e.name for e in find_entry_points(GROUP)] == ["npu"]
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(second / "accel_mlu-3.0.dist-info")])
    assert [e.name for e in find_entry_points(GROUP)] == ["npu", "mlu"]


# ---------------------------------------------------------------------------- loading what was found


def test_an_entry_point_names_a_module_or_an_object_in_it():
    def point(value):
        return packages.Provenance("dist", "1", "x", value)

    assert point("os.path").load() is os.path
    assert point("os:path.join [extra]").load() is os.path.join
    assert point(" os.path :join").module == "os.path"
    assert point("").module == "" == point(":x").module


def test_the_version_of_a_distribution_that_is_missing_or_broken_is_none(world):
    layouts.dist_info(world.site, "good", "1.5")
    layouts.dist_info(world.site, "broken", "1.0")
    (world.site / "broken-1.0.dist-info" / "METADATA").write_bytes(b"Name: broken\nVersion: \xff\n")
    world.set_path([world.site])
    assert packages.version("good") == "1.5"
    assert packages.version("absent-distribution") is None
    assert packages.version("") is None
    assert packages.version("broken") is None or isinstance(packages.version("broken"), str)
