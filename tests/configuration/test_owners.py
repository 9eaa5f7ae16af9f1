"""A file is obeyed as far as nobody but root and the user can have written it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from accel_core import configuration
from accel_core.configuration import file as files
from accel_core.settings import Pin

posix = pytest.mark.skipif(sys.platform == "win32", reason="no owners and modes of POSIX, no FIFOs")


@pytest.fixture
def as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """This user is another than the one who made the files."""
    if sys.platform == "win32":
        pytest.skip("no owners of POSIX")
    owner = os.geteuid() or 12345

    def owned(ask: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def asked(*where: object) -> os.stat_result:
            state = ask(*where)
            return os.stat_result((*state[:4], owner, *state[5:]), dict(_times(state)))

        return asked

    monkeypatch.setattr(files.os, "fstat", owned(os.fstat))
    monkeypatch.setattr(files.os, "lstat", owned(os.lstat))
    monkeypatch.setattr(files.os, "geteuid", lambda: owner + 1)


def _times(state: os.stat_result) -> dict[str, int]:
    return {name: getattr(state, name) for name in ("st_mtime_ns", "st_ctime_ns")}


@pytest.mark.usefixtures("as_another")
@pytest.mark.parametrize("way", ["group", "world", "folder"])
def test_a_file_that_others_may_write_is_obeyed_only_where_it_is_stricter(levels, way):
    levels.write("user", 'block = ["npu"]\nstrict = true\n')
    file = levels.write("project", 'block = ["mlu"]\nstrict = false\nprobe = "isolated"\naccelerator = "x"\n')
    mode = {"group": 0o664, "world": 0o646, "folder": 0o644}[way]
    file.chmod(mode)
    levels.project.chmod(0o1777 if way == "folder" else 0o755)
    found = levels.read()
    assert found.block == (Pin("npu"), Pin("mlu"))
    assert (found.strict, found.isolated, found.pins) == ("1", True, ())
    (note,) = found.notes
    assert note.startswith(
        f"{file} is not obeyed in what it says of accelerator, strict: it belongs to user "
    )
    others = "in a folder that everybody may write" if way == "folder" else "and others may write it"
    assert note.endswith(f", {others}.")
    file.chmod(0o644)
    levels.project.chmod(0o755)
    found = levels.read()
    assert (found.pins, found.notes) == ((Pin("x"),), ())


@pytest.mark.usefixtures("as_another")
def test_what_strangers_leave_lying_about_stops_nobody(levels):
    levels.project.chmod(0o1777)
    for text in ("no TOML", "lock = []\nzebra = 1", "#" * (configuration.LARGEST + 1)):
        file = levels.write("project", text)
        (note,) = levels.read().notes
        assert note.startswith(f"{file} is not obeyed: it belongs to user ")
    file.unlink()
    os.mkfifo(file)
    assert len(levels.read().notes) == 1


@posix
def test_a_link_is_judged_by_its_own_owner_and_by_its_folder(levels, tmp_path, monkeypatch):
    kept = tmp_path / "dotfiles.toml"
    kept.write_text('accelerator = "x"\n', encoding="utf-8")
    levels.files["project"].symlink_to(kept)
    assert levels.read().pins == (Pin("x"),)
    levels.project.chmod(0o777)  # whoever wants may put another link there
    found = levels.read()
    assert found.pins == ()
    assert "it is a link in a folder in which everybody may put another one" in found.notes[0]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_a_real_other_user(levels):
    file = levels.write("project", 'accelerator = "x"\n')
    os.chown(file, 12345, 12345)
    assert levels.read().pins == (Pin("x"),)
    file.chmod(0o666)
    (note,) = levels.read().notes
    assert note.endswith("says of accelerator: it belongs to user 12345, and others may write it.")
