"""What somebody leaves in a folder on `sys.path` neither hangs nor fills a process that only looks there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from accel_testing import layouts
from accel_testing.asking import chosen, only
from accel_testing.layouts import GROUP
from accel_testing.plugins import declaring
from accel_testing.scanning import Finder

from accel_core._support import metadata
from accel_core.detection.discovery import discover, find, installed_names
from accel_core.detection.entry_points import MOST_BYTES, find_entry_points, scan
from accel_core.detection.records import Status, Unloaded
from accel_core.settings import Pin

posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")


@pytest.fixture
def deadline():
    """Makes FIFOs; who waits for one is let go after 5 s, so that the test fails instead of hanging."""
    pipes: list[Path] = []
    late: list[Path] = []
    over = threading.Event()

    def make(path: Path) -> Path:
        os.mkfifo(path)
        pipes.append(path)
        return path

    def let_go() -> None:
        wait = 5.0
        while not over.wait(wait):
            wait = 0.1
            for pipe in pipes:
                with contextlib.suppress(OSError):  # nobody reads
                    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
                    late.append(pipe)

    watch = threading.Thread(target=let_go)
    watch.start()
    yield make
    over.set()
    watch.join()
    assert late == []


def distribution(root: Path, name: str, text: bytes | None = None) -> Path:
    layouts.dist_info(root, name, "1.0")
    folder = root / f"{name.replace('-', '_')}-1.0.dist-info"
    if text is not None:
        (folder / "entry_points.txt").write_bytes(text)
    return folder


@posix
@pytest.mark.parametrize("way", ["folder", "finder"])
def test_a_fifo_is_passed_over_and_told(world, deadline, monkeypatch, way):
    world.backend("npu")
    elsewhere = world.root / "elsewhere"
    folder = distribution(world.site if way == "folder" else elsewhere, "accel-bad")
    deadline(folder / "entry_points.txt")
    if way == "finder":
        monkeypatch.setattr(sys, "meta_path", [Finder(folder), *sys.meta_path])
    assert [e.name for e in find_entry_points(GROUP)] == ["npu"]
    bad = only("accel-bad")
    assert isinstance(bad, Unloaded)
    assert not bad.builtin
    assert bad.outcome.status is Status.INVALID
    assert f"{folder}/entry_points.txt is a FIFO, expected a regular file" in bad.outcome.reason
    assert str(bad.provenance) == "accel-bad 1.0"
    assert find(Pin("accel-bad")) == (bad,)
    # The policy is for it too, and the others are chosen from as ever.
    selection = chosen(ACCEL_BLOCK="accel-bad@accel-bad")
    assert {v.name: v.status for v in selection.verdicts}.get("accel-bad", Status.BLOCKED) is Status.BLOCKED


@posix
def test_fifos_in_other_places_hang_nobody(world, deadline, monkeypatch):
    """A path entry, a plugin's METADATA, and both where somebody's finder makes importlib look."""
    world.plugin("npu", "")
    folder = world.site / "accel_npu-1.0.dist-info"
    (folder / "METADATA").unlink()
    deadline(folder / "METADATA")
    pipe = deadline(world.root / "pipe")
    world.set_path([pipe, world.site])
    assert [(e.name, e.distribution, e.version) for e in find_entry_points(GROUP)] == [
        ("npu", "accel_npu", "1.0")
    ]
    assert metadata.version("accel-npu") is None
    empty = world.root / "empty-1.0.dist-info"
    empty.mkdir()
    monkeypatch.setattr(sys, "meta_path", [Finder(empty), *sys.meta_path])
    assert [u.distribution for u in scan(GROUP).unread] == ["accel_npu"]


@pytest.mark.parametrize("way", ["folder", "finder", "archive"])
def test_a_file_that_is_too_long_is_told_with_the_limit(world, monkeypatch, way):
    line = b"# filling\n"
    text = b"[accel.backends]\nbad = accel_bad\n" + line * (MOST_BYTES // len(line))
    folder = distribution(world.site if way == "folder" else world.root / "elsewhere", "accel-bad", text)
    if way == "finder":
        monkeypatch.setattr(sys, "meta_path", [Finder(folder), *sys.meta_path])
    if way == "archive":
        with zipfile.ZipFile(world.root / "bad.zip", "w", zipfile.ZIP_DEFLATED) as out:
            out.write(folder / "METADATA", "accel_bad-1.0.dist-info/METADATA")
            out.write(folder / "entry_points.txt", "accel_bad-1.0.dist-info/entry_points.txt")
        world.set_path([world.site, world.root / "bad.zip"])
    assert find_entry_points(GROUP) == ()
    reason = only("accel-bad").outcome.reason
    assert "entry_points.txt" in reason
    assert "accel_bad-1.0.dist-info" in reason
    assert f"more than {MOST_BYTES} bytes" in reason


def test_a_long_file_is_read_whole(world):
    lines = b"x = y\n" * 100_000
    distribution(world.site, "accel-npu", b"[other]\n" + lines + b"[accel.backends]\nnpu = accel_npu\n")
    assert [e.name for e in find_entry_points(GROUP)] == ["npu"]


def test_a_folder_in_place_of_the_file_is_told(world):
    (distribution(world.site, "accel-bad") / "entry_points.txt").mkdir()
    if sys.platform != "win32":  # where a folder cannot be opened
        assert "is a folder, expected a regular file" in only("accel-bad").outcome.reason


def test_an_entry_point_without_a_name_is_nobodys_and_runs_nothing(world):
    """It counted as built in: no isolation, no policy by name, and no news when it failed."""
    world.plugin("bad", "open(__file__ + '.ran', 'w')\n" + declaring())
    folder = world.site / "accel_bad-1.0.dist-info"
    (folder / "entry_points.txt").write_text("[accel.backends]\n = accel_bad\n=\n")
    found = [c for c in discover() if c.distribution == "accel-bad"]
    assert [(c.name, c.builtin) for c in found] == [("accel-bad", False)] * 2
    assert all(isinstance(c, Unloaded) and c.outcome.status is Status.INVALID for c in found)
    assert "the entry point has no name, expected that of its backend" in found[0].outcome.reason
    assert not (world.site / "accel_bad.py.ran").exists()
    assert "" not in installed_names()
    assert [c.builtin for c in discover() if c.name == "cpu"] == [True]


def test_the_module_takes_no_plugin_from_the_current_folder(world, tmp_path):
    """`accel`, the script, does not have that folder on its path; whoever wants it there says PYTHONPATH."""
    here = tmp_path / "here"
    layouts.dist_info(here, "accel-bad", "1.0", {GROUP: {"bad": "accel_bad"}}, {"accel_bad": declaring()})
    layouts._write(here, {"click.py": "raise SystemExit('imported from the current folder')"})
    path = os.pathsep.join(world.path)

    def listed(*options: str, **more: str) -> str:
        command = [sys.executable, "-S", *options, "-m", "accel_core", "list", "--no-probe"]
        env = {**os.environ, "PYTHONPATH": path, **more}
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout + done.stderr

    assert "bad" not in listed()
    (here / "click.py").unlink()
    assert "bad" in listed(PYTHONPATH=os.pathsep.join([str(here), path]))
