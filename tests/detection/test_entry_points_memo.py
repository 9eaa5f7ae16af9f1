"""What was scanned is kept while nothing changed, and read again once something did."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from accel_testing import layouts
from accel_testing.layouts import GROUP
from accel_testing.scanning import ONE, Finder, oracle, ours, site

from accel_core.detection import entry_points as scan
from accel_core.detection.entry_points import find_entry_points

pytestmark = [pytest.mark.usefixtures("archives"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


def count_listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = os.listdir

    def listdir(path):
        seen.append(str(path))
        return real(path)

    monkeypatch.setattr(scan.os, "listdir", listdir)
    return seen


def test_nothing_is_read_again_while_nothing_changed(only, tmp_path, monkeypatch):
    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    first = find_entry_points(GROUP)
    listings = count_listings(monkeypatch)
    assert find_entry_points(GROUP) is first
    assert listings == []


def _age(path: Path, seconds: int) -> None:
    """Coarse clocks must not decide a test."""
    stamp = path.stat().st_mtime_ns + seconds * 10**9
    os.utime(path, ns=(stamp, stamp))


def test_an_installation_and_a_removal_are_noticed(only, tmp_path):
    root = site(tmp_path)
    only([root])
    assert ours() == []
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    _age(root, 10)
    assert ours() == oracle() == [("npu", "accel_npu", "accel-npu", "1.0")]
    shutil.rmtree(root / "accel_npu-1.0.dist-info")
    _age(root, 20)
    assert ours() == oracle() == []


def test_a_new_path_entry_and_a_new_order_are_noticed(only, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", ONE)
    layouts.dist_info(second, "accel-npu", "2.0", ONE)
    only([first])
    assert [e.version for e in find_entry_points(GROUP)] == ["1.0"]
    sys.path.insert(0, str(second))
    assert [e.version for e in find_entry_points(GROUP)] == ["2.0"]
    sys.path[:2] = reversed(sys.path[:2])
    assert [e.version for e in find_entry_points(GROUP)] == ["1.0"]


def test_an_archive_that_is_written_anew_is_noticed(only, tmp_path):
    root = site(tmp_path)
    egg = layouts.egg_zip(root, "accel-npu", "1.0", ONE)
    only([egg])
    assert len(ours()) == 1
    layouts.egg_zip(root, "accel-npu", "1.0", {GROUP: {"npu": "accel_npu", "npu2": "accel_npu"}})
    _age(egg, 10)
    importlib.invalidate_caches()
    assert ours() == oracle()
    assert len(ours()) == 2


def test_a_new_finder_is_noticed(only, tmp_path, monkeypatch):
    elsewhere = site(tmp_path, "elsewhere")
    layouts.dist_info(elsewhere, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    only([site(tmp_path)])
    assert ours() == []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(elsewhere / "accel_mlu-3.0.dist-info")])
    assert [e.name for e in find_entry_points(GROUP)] == ["mlu"]


def test_groups_are_kept_apart(only, tmp_path):
    layouts.dist_info(site(tmp_path), "both", "1.0", {GROUP: {"a": "m"}, "torch.backends": {"b": "n"}})
    only([tmp_path / "site"])
    for _ in range(2):
        assert [e.name for e in find_entry_points(GROUP)] == ["a"]
        assert [e.name for e in find_entry_points("torch.backends")] == ["b"]
