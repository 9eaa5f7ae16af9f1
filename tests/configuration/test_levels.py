"""Configuration files: which are found, who wins, and what is handed on."""

from __future__ import annotations

import os
import sys

import pytest

from accel_core import configuration, settings
from accel_core.errors import SettingError
from accel_core.settings import Pin, Settings, read

posix = pytest.mark.skipif(sys.platform == "win32", reason="no owners and modes of POSIX, no FIFOs")


# --- who wins ------------------------------------------------------------------------------------------


def test_each_level_wins_over_those_below_it_key_by_key(levels):
    assert levels.read() == Settings(asked="DS_ACCELERATOR=''")
    for level, name in (("site", "a"), ("environment", "b"), ("user", "c"), ("project", "d")):
        file = levels.write(level, f'probe-timeout = 3\n\naccelerator = "{name}"  # a pin\n')
        found = levels.read()
        assert found.pins == (Pin(name),)
        assert found.asked == f"accelerator = '{name}' in {file}, line 3"
    levels.write("project", "strict = true\n")
    assert levels.read().strict == "1"
    assert levels.read().pins == (Pin("c"),)
    found = levels.read(DS_ACCELERATOR="e", ACCEL_STRICT="0")
    assert (found.pins, found.strict, found.asked) == ((Pin("e"),), "", "DS_ACCELERATOR='e'")
    assert found.probe_timeout == 3
    assert [name for name, _ in found.sources] == ["ACCEL_PROBE_TIMEOUT"]


def test_every_key_and_what_its_variable_would_say(levels):
    levels.write(
        "user",
        'accelerator = ["NPU", "cuda @ Accel_CUDA"]\nallow = ["@ACME", "cpu"]\nblock = ["xpu@x"]\n'
        'strict = "always"\nprobe = "isolated"\nprobe-timeout = 2.5\ncompile = true\ncache = "kept"\n'
        "vendor-defaults = false\n",
    )
    found = levels.read()
    assert found.pins == (Pin("npu"), Pin("cuda", "accel-cuda"))
    assert (found.allow, found.block) == ((Pin("", "acme"), Pin("cpu")), (Pin("xpu", "x"),))
    assert (found.strict, found.isolated, found.probe_timeout) == ("always", True, 2.5)
    assert settings.ACCEL_COMPILE.read(levels.environ) is True
    assert settings.ACCEL_VENDOR_DEFAULTS.read(levels.environ) is False
    cache = str(levels.files["user"].parent / "kept")
    assert settings.ACCEL_CACHE.read(levels.environ) == cache
    assert levels.handed_on(ACCEL_COMPILE="0", ACCEL_LOG="1") == {
        "DS_ACCELERATOR": "NPU,cuda @ Accel_CUDA",
        "ACCEL_ALLOW": "@ACME,cpu",
        "ACCEL_BLOCK": "xpu@x",
        "ACCEL_STRICT": "always",
        "ACCEL_PROBE": "isolated",
        "ACCEL_PROBE_TIMEOUT": "2.5",
        "ACCEL_CACHE": cache,
        "ACCEL_VENDOR_DEFAULTS": "0",
        "ACCEL_CONFIG": "none",
    }
    assert {v.key for v in settings.VARIABLES if v.key} == {
        *("accelerator", "allow", "block", "strict", "probe", "probe-timeout", "compile", "cache"),
        "vendor-defaults",
    }


def test_what_is_handed_on_gives_the_same_settings_elsewhere(levels, monkeypatch, tmp_path):
    levels.write("project", 'block = ["npu", "@acme"]\nprobe = "isolated"\n')
    here = levels.read()
    handed = levels.handed_on()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "accel.toml").write_text('accelerator = "mlu"\n', encoding="utf-8")
    there = levels.read(**handed)
    assert there == here._replace(sources=(), blocking=())
    assert levels.read().pins == (Pin("mlu"),)
    levels.write("user", "")
    (tmp_path / "elsewhere" / "accel.toml").unlink()
    assert levels.handed_on() == {}


def test_a_file_that_changes_is_read_anew(levels):
    file = levels.write("project", "strict = true\n")
    assert levels.read().strict == "1"
    levels.write("project", 'strict = "always"\n')
    assert levels.read().strict == "always"
    file.unlink()
    assert levels.read().strict == ""


# --- where a project's file is found -------------------------------------------------------------------


def test_the_nearest_file_upward_is_the_projects(levels, monkeypatch):
    below = levels.project / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    levels.write("project", 'accelerator = "far"\n')
    assert levels.read().pins == (Pin("far"),)
    (levels.project / "a" / "pyproject.toml").write_text("[tool.other]\naccel = 1\n", encoding="utf-8")
    assert levels.read().pins == (Pin("far"),)  # says nothing to us
    pyproject = levels.project / "a" / "pyproject.toml"
    pyproject.write_text('[project]\nname = "x"\n\n[tool.accel]\naccelerator = "near"\n', encoding="utf-8")
    assert levels.read().asked == f"accelerator = 'near' in {pyproject}, line 5"
    (levels.project / "a" / "accel.toml").write_text('accelerator = "own"\n', encoding="utf-8")
    assert levels.read().pins == (Pin("own"),)  # before a pyproject.toml beside it


@pytest.mark.parametrize(
    "text",
    ['[ tool . "accel" ]\nstrict = true', "[tool]\naccel = {strict = true}", "tool.accel.strict = true"],
)
def test_every_way_to_write_the_table_of_a_pyproject(levels, text):
    (levels.project / "pyproject.toml").write_text(text, encoding="utf-8")
    assert levels.read().strict == "1"


@pytest.mark.parametrize("mark", [".git", ".hg", "home"])
def test_the_search_ends_at_the_top_of_a_repository_and_at_home(levels, mark):
    outside = levels.home / "work" / "accel.toml" if mark != "home" else levels.home.parent / "accel.toml"
    outside.write_text('accelerator = "outside"\n', encoding="utf-8")
    expected = () if mark == "home" else (Pin("outside"),)
    assert levels.read().pins == expected
    if mark != "home":
        (levels.project / mark).mkdir()
        assert levels.read().pins == ()


@posix
def test_the_search_ends_where_a_file_system_ends(levels, monkeypatch):
    outside = levels.home / "work" / "accel.toml"
    outside.write_text('accelerator = "outside"\n', encoding="utf-8")
    assert levels.read().pins == (Pin("outside"),)
    real = configuration._state

    def mounted(path: str) -> os.stat_result | None:
        state = real(path)
        if state is None or path != str(levels.project):
            return state
        return os.stat_result((*state[:2], state.st_dev + 1, *state[3:10]))

    monkeypatch.setattr(configuration, "_state", mounted)  # a mount needs root
    assert levels.read().pins == ()


@posix
def test_without_a_home_and_in_a_folder_that_was_deleted(levels, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read({"HOME": "/nowhere/at/all"}).pins == ()


def test_where_the_files_of_site_and_user_are(tmp_path):
    sites = dict(configuration.site_files({"PROGRAMDATA": "C:/ProgramData"}))
    assert sites["environment"] == f"{sys.prefix}/etc/accel/accel.toml"
    if sys.platform.startswith("linux"):
        assert sites["site"] == "/etc/accel/accel.toml"
        assert configuration.user_file({"HOME": "/h"}) == "/h/.config/accel/accel.toml"
        assert configuration.user_file({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == "/x/accel/accel.toml"
        assert configuration.user_file({"HOME": "/h", "XDG_CONFIG_HOME": "rel"}) == (
            "/h/.config/accel/accel.toml"
        )


# --- ACCEL_CONFIG --------------------------------------------------------------------------------------


def test_one_file_instead_of_the_search_or_none(levels, tmp_path):
    levels.write("site", 'block = ["npu"]\nstrict = true\nlock = ["block"]\n')
    levels.write("user", 'accelerator = "user"\n')
    levels.write("project", 'accelerator = "project"\n')
    other = tmp_path / "other.toml"
    other.write_text('accelerator = "other"\n', encoding="utf-8")
    found = levels.read(ACCEL_CONFIG=str(other))
    assert (found.pins, found.block, found.strict) == ((Pin("other"),), (Pin("npu"),), "")
    found = levels.read(ACCEL_CONFIG="None")
    assert (found.pins, found.block, found.strict) == ((), (Pin("npu"),), "")
    with pytest.raises(SettingError, match=r"ACCEL_CONFIG='gone.toml': there is no .*ACCEL_CONFIG=none"):
        levels.read(ACCEL_CONFIG="gone.toml")


def test_without_a_file_a_few_questions_a_folder_are_all_that_a_choice_pays(levels, monkeypatch):
    """No file is opened, and what reads them is not even imported: `tests/test_import_hygiene.py`."""
    deep = levels.project / "a" / "b" / "c"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    asked = []
    real = os.access, os.stat, os.path.lexists
    monkeypatch.setattr(configuration.os, "access", lambda *given: asked.append(given) or real[0](*given))
    monkeypatch.setattr(configuration.os, "stat", lambda *given: asked.append(given) or real[1](*given))
    monkeypatch.setattr(
        configuration.os.path, "lexists", lambda *given: asked.append(given) or real[2](*given)
    )
    monkeypatch.setattr(configuration.os, "open", lambda *given: pytest.fail("it is not there"))
    assert configuration.search(levels.environ) == ()
    assert len(asked) <= 5 + 5 * 6  # five below the home folder, and it
