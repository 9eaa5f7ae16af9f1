"""`find_entry_points` gives what `importlib.metadata.entry_points(group=…)` gives, on every layout."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zipfile

import pytest
from accel_testing import layouts
from accel_testing.layouts import GROUP
from accel_testing.scanning import ONE, Finder, oracle, ours, site

from accel_core._support import metadata
from accel_core.detection.entry_points import EntryPoint, find_entry_points

pytestmark = [pytest.mark.usefixtures("archives"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.parametrize("layout", layouts.ALL, ids=lambda layout: layout.__name__)
def test_every_layout_is_found(only, tmp_path, layout):
    root = site(tmp_path)
    entry = layout(root, "accel-npu", "1.2", ONE, {"accel_npu": ""})
    only([entry])
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.2")]


@pytest.mark.parametrize("layout", layouts.ALL, ids=lambda layout: layout.__name__)
def test_a_distribution_without_our_group_is_not_found(only, tmp_path, layout):
    entry = layout(site(tmp_path), "other", "1.0", {"console_scripts": {"accel.backends": "x:y"}})
    only([entry])
    assert ours() == oracle() == []


def test_the_first_distribution_on_the_path_counts(only, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", {GROUP: {"npu": "old"}})
    layouts.dist_info(second, "Accel.NPU", "2.0", {GROUP: {"npu": "new"}})
    only([first, second])
    assert ours() == oracle() == [("npu", "old", "accel-npu", "1.0")]
    only([second, first])
    assert ours() == oracle() == [("npu", "new", "Accel.NPU", "2.0")]


@pytest.mark.parametrize("earlier", ["dist_info", "egg_info_file", "egg_zip", "wheel_zip"])
def test_an_earlier_distribution_without_the_group_hides_a_later_one(only, tmp_path, earlier):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    entry = getattr(layouts, earlier)(first, "accel-npu", "1.0")
    layouts.dist_info(second, "accel-npu", "2.0", ONE)
    only([entry, second])
    assert ours() == oracle() == []


def test_a_path_entry_given_twice_counts_once(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root, root, f"{root}/"])
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_the_empty_path_entry_is_the_current_directory(only, tmp_path, monkeypatch):
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    monkeypatch.chdir(tmp_path / "site")
    only([""])
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_paths_that_hold_nothing_are_passed_over(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    (tmp_path / "text.zip").write_text("no archive")
    (tmp_path / "namespace" / "accel").mkdir(parents=True)  # a namespace package's folder
    only(
        [
            tmp_path / "missing",
            tmp_path / "text.zip",
            tmp_path / "text.zip" / "sub",
            tmp_path / "namespace",
            root,
        ]
    )
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_a_path_entry_that_is_no_text_is_passed_over(only, tmp_path):
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([])
    sys.path[:] = [None, 3, tmp_path / "site"]  # type: ignore[list-item]
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_a_path_entry_with_a_null_byte_is_passed_over(only, tmp_path):
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only(["nul\0l", tmp_path / "site"])
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read_is_passed_over(only, tmp_path):
    closed = site(tmp_path, "closed")
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    closed.chmod(0)
    only([closed, tmp_path / "site"])
    try:
        assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize(
    "text",
    [
        "[accel.backends]\nnpu=accel_npu",
        "[accel.backends]\r\n  npu =  accel_npu:plugin  \r\n",
        "# [accel.backends]\n[other]\nnpu = no\n[accel.backends]\n# note\n\nnpu = yes\n[more]\nx = y\n",
        "[accel.backends]\na = one\n[other]\nb = two\n[accel.backends]\nc = three\n",
        "[accel.backends]\nnpu = accel_npu [extra]\n",
        "[[accel.backends]]\nnpu = odd\n",
        "[ accel.backends ]\nnpu = spaces\n",
        "\ufeff[accel.backends]\nnpu = after-a-mark\n",
        "[accel.backends]\nnpu = accel_npu\nnpu = accel_npu\n",
        "[accel.backends.more]\nnpu = accel_npu\n",
        "npu = accel.backends\n",
        "",
    ],
)
def test_the_file_is_read_as_importlib_reads_it(only, tmp_path, text):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0")
    (root / "accel_npu-1.0.dist-info" / "entry_points.txt").write_bytes(text.encode())
    only([root])
    assert ours() == oracle()


@pytest.mark.parametrize(("line", "found"), [("junk", ("junk", "")), ("npu = a=b", ("npu", "a=b"))])
def test_a_malformed_line_is_a_broken_entry_point_and_hides_nobody(only, tmp_path, line, found):
    """importlib itself, or its backport, fails on the whole group here, for every plugin."""
    root = site(tmp_path)
    layouts.dist_info(root, "accel-bad", "1.0")
    (root / "accel_bad-1.0.dist-info" / "entry_points.txt").write_text(f"[accel.backends]\n{line}\n")
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    assert sorted(e[2:3] + e[:2] for e in ours()) == [
        ("accel-bad", *found),
        ("accel-npu", "npu", "accel_npu"),
    ]


def test_neighbours_with_metadata_that_is_not_utf_8_hide_nobody(only, tmp_path):
    """USERS 8: one broken neighbour must not take the others away."""
    root = site(tmp_path)
    for name in ("aaa", "zzz"):
        layouts.dist_info(root, name, "1.0", {"console_scripts": {"x": "y"}})
        info = root / f"{name}-1.0.dist-info"
        (info / "METADATA").write_bytes(b"Name: \xff\xfe\nVersion: 1.0\n")
        (info / "entry_points.txt").write_bytes(b"[console_scripts]\nx = \xff\n")
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_a_plugin_with_a_stray_byte_is_still_read(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0")
    info = root / "accel_npu-1.0.dist-info"
    (info / "METADATA").write_bytes(b"Name: accel-npu\nSummary: \xe9\nVersion: 1.0\n\n")
    (info / "entry_points.txt").write_bytes(b"# caf\xe9\n[accel.backends]\nnpu = accel_npu\n")
    only([root])
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_a_broken_neighbour_in_an_archive_hides_nobody(only, tmp_path):
    archive = tmp_path / "many.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("bad-1.0.dist-info/entry_points.txt", b"[accel.backends]\n\xff = x\n")
        out.writestr("accel_npu-1.0.dist-info/METADATA", layouts.metadata_text("accel-npu", "1.0"))
        out.writestr("accel_npu-1.0.dist-info/entry_points.txt", layouts.entry_points_text(ONE))
    only([archive])
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


@pytest.mark.parametrize("metadata_bytes", [None, b"", b"\n\nName: too-late\n", b"Summary: no name\n\n"])
def test_without_a_name_in_its_metadata_the_folder_names_the_distribution(only, tmp_path, metadata_bytes):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    file = root / "accel_npu-1.0.dist-info" / "METADATA"
    file.unlink() if metadata_bytes is None else file.write_bytes(metadata_bytes)
    only([root])
    assert ours() == [("npu", "accel_npu", "accel_npu", "1.0")]


def test_a_folder_in_place_of_the_file_is_passed_over(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-bad", "1.0")
    (root / "accel_bad-1.0.dist-info" / "entry_points.txt").mkdir()
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_a_finder_of_somebody_elses_is_asked(only, tmp_path, monkeypatch):
    elsewhere, root = site(tmp_path, "elsewhere"), site(tmp_path)
    layouts.dist_info(elsewhere, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    monkeypatch.setattr(sys, "meta_path", [Finder(elsewhere / "accel_mlu-3.0.dist-info"), *sys.meta_path])
    assert ours() == oracle()
    assert [e.name for e in find_entry_points(GROUP)] == ["mlu", "npu"]


def test_a_finder_whose_metadata_cannot_be_read_gives_the_name_of_its_folder(only, tmp_path, monkeypatch):
    elsewhere = site(tmp_path, "elsewhere")
    layouts.dist_info(elsewhere, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    folder = elsewhere / "accel_mlu-3.0.dist-info"
    (folder / "METADATA").write_bytes(b"Name: \xff\n")
    only([])
    monkeypatch.setattr(sys, "meta_path", [Finder(folder), *sys.meta_path])
    assert ours() == [("mlu", "accel_mlu", "accel_mlu", "")]


def test_a_finder_that_fails_hides_nobody(only, tmp_path, monkeypatch):
    class Failing(Finder):
        def find_distributions(self, context=None):
            raise RuntimeError("no distributions today")

    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    monkeypatch.setattr(sys, "meta_path", [Failing(tmp_path), *sys.meta_path])
    assert ours() == [("npu", "accel_npu", "accel-npu", "1.0")]


def test_the_backport_that_somebody_imports_changes_nothing(only, tmp_path, base_path, world):
    """The backport takes the standard library's finder away and puts its own in place."""
    if importlib.util.find_spec("importlib_metadata") is None:
        pytest.skip("the backport is not installed")
    world.distribution("accel-npu", "1.0", ONE)
    code = (
        "import json, sys\nfrom accel_core.detection.entry_points import find_entry_points as find\n"
        f"import importlib_metadata\nfound = find({GROUP!r})\n"
        "print(json.dumps([[e.name, e.distribution] for e in found]))"
    )
    assert world.child(code).answer == [["npu", "accel-npu"]]


# ---------------------------------------------------------------------------- loading what was found


def test_an_entry_point_names_a_module_or_an_object_in_it():
    def point(value: str) -> EntryPoint:
        return EntryPoint("x", value, "dist", "1")

    assert point("os.path").load() is os.path
    assert point("os:path.join [extra]").load() is os.path.join
    assert point(" os.path :join").module == "os.path"
    assert point("").module == "" == point(":x").module


# ---------------------------------------------------------------------------- versions


def test_the_version_of_a_distribution_that_is_missing_or_broken_is_none(world):
    layouts.dist_info(world.site, "good", "1.5")
    layouts.dist_info(world.site, "broken", "1.0")
    (world.site / "broken-1.0.dist-info" / "METADATA").write_bytes(b"Name: broken\nVersion: \xff\n")
    layouts.dist_info(world.site, "empty", "1.0")
    (world.site / "empty-1.0.dist-info" / "METADATA").unlink()
    world.set_path([world.site])
    assert metadata.version("good") == "1.5"
    assert metadata.version("absent-distribution") is None
    assert metadata.version("") is None
    assert metadata.version("broken") is None or isinstance(metadata.version("broken"), str)
    assert metadata.version("empty") is None or metadata.version("empty") == "1.0"
