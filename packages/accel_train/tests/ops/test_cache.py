"""What is compiled is kept in a folder that is the user's alone, and nothing else is loaded from there."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("filelock")  # comes with torch

from accel_tests.processes import until

from accel_core.errors import OpCacheError
from accel_train.ops import cache

LIBRARY, MANIFEST = "op.so", "manifest.json"
POSIX = pytest.mark.skipif(os.name == "nt", reason="owners and modes are POSIX's")
ROOT_ONLY = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a file to another user",
)
PLACES = ["root", "ops", "entry", "library", "manifest"]
EACH = pytest.mark.parametrize("which", PLACES)


def make(folder):
    library = folder / LIBRARY
    library.write_bytes(b"code")
    return library


def never(folder):
    raise AssertionError("built again")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def place(root):
    return cache.entry("op", {"torch": "2.13.0"})


@pytest.fixture
def built(place):
    place.build(make)
    return place


# ---------------------------------------------------------------------------- where


FOLDERS = [
    ({}, "linux", "/home/me/.cache/accel-core"),
    ({"XDG_CACHE_HOME": "/kept"}, "linux", "/kept/accel-core"),
    ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/me/.cache/accel-core"),
    ({}, "darwin", "/home/me/Library/Caches/accel-core"),
    ({}, "win32", "/home/me/AppData/Local/accel-core/Cache"),
    ({"ACCEL_CACHE": "/mine"}, "darwin", "/mine"),
    ({"ACCEL_CACHE": "here"}, "linux", str(Path.cwd() / "here")),
]


@pytest.mark.parametrize(("variables", "platform", "expected"), FOLDERS)
def test_the_folder_is_the_one_that_is_set_else_the_platforms(
    variables, platform, expected, monkeypatch
):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert cache.default_root(variables, platform) == Path(expected)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    if expected.startswith("/home"):
        with pytest.raises(OpCacheError, match="Set ACCEL_CACHE"):
            cache.default_root(variables, platform)


def test_each_set_of_inputs_has_a_place_of_its_own(root):
    inputs = (
        {"torch": "2.13.0"},
        {"torch": "2.12.0"},
        {"torch": "2.13.0", "flags": ["-O3"]},
        {},
    )
    assert len({cache.entry("op", each).name for each in inputs}) == 4
    assert cache.entry("op", {"a": 1, "b": 2}) == cache.entry("op", {"b": 2, "a": 1})


# ---------------------------------------------------------------------------- building


def test_what_was_built_is_found_and_not_built_again(place):
    assert place.fault() == ""
    # A folder without manifest is no build.
    place.folder.mkdir(parents=True, mode=0o700)
    (place.folder / LIBRARY).write_bytes(b"half")
    assert place.find() is None
    library = place.build(make)
    assert library.read_bytes() == b"code"
    assert place.find() == place.build(never) == library
    noted = json.loads((place.folder / MANIFEST).read_text())
    assert noted["inputs"] == {"torch": "2.13.0"}


@POSIX
@pytest.mark.parametrize("umask", [0, 0o022])
def test_what_is_made_is_the_users_alone_whatever_the_umask(place, umask):
    place = cache.Entry(place.root / "made" / "too" / "cache", place.name, place.inputs)
    before = os.umask(umask)
    try:
        library = place.build(make)
    finally:
        os.umask(before)
    above = [place.root.parent, place.root.parent.parent]
    for path in (*above, place.root, place.root / "ops", place.folder, library):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


def test_a_build_that_fails_leaves_nothing(place):
    def fails(folder):
        make(folder)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        place.build(fails)
    assert [p.name for p in (place.root / "ops").iterdir() if p.is_dir()] == []
    assert place.find() is None
    assert place.build(make).exists()


# ---------------------------------------------------------------------------- refusing


def refused(entry):
    with pytest.raises(OpCacheError) as caught:
        entry.find()
    with pytest.raises(OpCacheError):
        entry.build(never)
    return str(caught.value)


def changed(entry, tmp_path):
    (entry.folder / LIBRARY).write_bytes(b"evil")


def gone(entry, tmp_path):
    (entry.folder / LIBRARY).unlink()


def elsewhere(entry, tmp_path):
    """A manifest that names a library outside."""
    (tmp_path / "evil.so").write_bytes(b"code")
    manifest = entry.folder / MANIFEST
    written = {**json.loads(manifest.read_text()), "library": str(tmp_path / "evil.so")}
    manifest.write_text(json.dumps(written))


HARMED = [
    (changed, ["{folder}/op.so", "rm -r {folder}"]),
    (gone, [LIBRARY]),
    (elsewhere, ["{folder}/evil.so"]),
    *(
        (text, ["rm -r {folder}"])
        for text in (
            "",
            "{",
            "[]",
            '{"library": "op.so"}',
            '{"library": 1, "sha256": ""}',
        )
    ),
]


@pytest.mark.parametrize(("harm", "words"), HARMED)
def test_what_is_not_what_was_built_is_refused(built, tmp_path, harm, words):
    if callable(harm):
        harm(built, tmp_path)
    else:
        (built.folder / MANIFEST).write_text(harm)
    message = refused(built)
    for word in words:
        assert word.format(folder=built.folder) in message


def path_of(entry, which):
    folder = entry.folder
    return (entry.root, folder.parent, folder, folder / LIBRARY, folder / MANIFEST)[
        PLACES.index(which)
    ]


@POSIX
@EACH
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_what_others_can_write_is_refused(built, which, mode):
    path = path_of(built, which)
    path.chmod(mode)
    message = refused(built)
    assert f"{path} can be written by others (mode {mode:04o})" in message
    assert f"chmod go-w {path}" in message


@POSIX
@EACH
def test_a_link_and_what_belongs_to_another_user_are_refused(built, which, tmp_path):
    path = path_of(built, which)
    if os.geteuid() == 0:  # only root can give a file to another user
        os.chown(path, 65534, 65534)
        message = refused(built)
        assert f"{path} belongs to user 65534" in message
        assert "ACCEL_CACHE" in message
        os.chown(path, 0, 0)
    path.rename(tmp_path / "real")
    path.symlink_to(tmp_path / "real")
    assert f"{path} is a symbolic link" in refused(built)


@POSIX
def test_a_folder_above_that_others_can_write_is_refused(built, tmp_path):
    """Whoever may write there puts another tree in the place of ours."""
    tmp_path.chmod(0o777)
    assert (
        f"{tmp_path}, above the folder for compiled operators, can be written by others"
        in refused(built)
    )
    tmp_path.chmod(0o1777)  # sticky, as /tmp is
    assert built.build(never) == built.find()
    # A link on the way counts, and the folders that it leads through.
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "open" / "way").symlink_to(tmp_path)
    linked = cache.Entry(tmp_path / "open" / "way" / "cache", built.name, built.inputs)
    assert linked.find() is not None
    (tmp_path / "open").chmod(0o777)
    assert f"{tmp_path / 'open'}, above" in refused(linked)
    (tmp_path / "open" / "way").unlink()
    (tmp_path / "open" / "way").symlink_to("way")
    (tmp_path / "open").chmod(0o700)
    assert "too many symbolic links" in refused(linked)


@POSIX
@ROOT_ONLY
def test_a_folder_above_of_another_user_or_group_is_refused(built, tmp_path):
    """As where root has kept another's HOME."""
    os.chown(tmp_path, 65534, -1)
    assert (
        f"{tmp_path}, above the folder for compiled operators, belongs to user 65534"
        in refused(built)
    )
    os.chown(tmp_path, 0, 65534)
    assert built.find() is not None
    tmp_path.chmod(0o770)
    assert "can be written by others (mode 0770)" in refused(built)
    os.chown(tmp_path, 0, 0)  # root's group is no other
    assert built.find() is not None


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_made_is_named(monkeypatch, tmp_path, below):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "file" / below))
    place = cache.entry("op", {})
    with pytest.raises(OpCacheError, match="Set ACCEL_CACHE") as caught:
        place.build(never)
    assert str(tmp_path / "file" / below) in str(caught.value)
    assert place.fault() == str(caught.value)


@POSIX
@ROOT_ONLY
def test_a_read_only_folder_is_named_and_what_is_in_it_still_loads(monkeypatch):
    """As a user without root's rights, for whom modes count; in a fork, as these do not come back."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("ACCEL_CACHE", f"{folder}/cache")
        kept, new = cache.entry("kept", {}), cache.entry("new", {})
        cache.Entry(Path(folder, "before"), kept.name, {}).build(
            make
        )  # all is imported
        os.chown(folder, 65534, 65534)
        if (child := os.fork()) == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            kept.build(make)
            (kept.root / "ops").chmod(0o500)
            said = ""
            try:
                new.build(make)
            except OpCacheError as error:
                said = str(error)
            words = f"{folder}/cache/ops cannot be written: Permission denied. Set ACCEL_CACHE"
            good = (
                kept.find().read_bytes() == b"code"
                and said == new.fault()
                and said.startswith(words)
            )
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0


# ---------------------------------------------------------------------------- several processes

#: Builds one entry, slowly; the first argument is the folder, the second a file that notes each build.
BUILDER = f"""
import sys; sys.path[:] = {sys.path!r}
import os, time
root, notes, seconds = sys.argv[1:]
os.environ["ACCEL_CACHE"] = root
from accel_train.ops import cache
def make(folder):
    with open(notes, "a") as file:
        file.write("built\\n")
    (folder / "op.so").write_bytes(b"code")
    time.sleep(float(seconds))
    return folder / "op.so"
waited = []
library = cache.entry("op", {{}}).build(make, waiting=lambda: waited.append(1))
print(library.read_text(), len(waited))
"""


def builder(root, notes, seconds):
    command = [sys.executable, "-c", BUILDER, str(root), str(notes), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_processes_that_come_at_once_one_builds(root, tmp_path):
    children = [builder(root, tmp_path / "notes", 1.0) for _ in range(3)]
    said = sorted(child.communicate(timeout=60)[0].strip() for child in children)
    assert (tmp_path / "notes").read_text() == "built\n"
    assert said[0] == "code 0"  # who built did not wait
    assert all(line.startswith("code") for line in said)


@POSIX
def test_a_builder_that_is_killed_blocks_nobody(root, tmp_path):
    notes = tmp_path / "notes"
    child = builder(root, notes, 600)
    until(notes.exists, 60)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    place = cache.entry("op", {})
    (left,) = (p for p in (root / "ops").iterdir() if p.is_dir())
    assert place.find() is None
    assert place.build(make).read_bytes() == b"code"
    assert not left.exists()
