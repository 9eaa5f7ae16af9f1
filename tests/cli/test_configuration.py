"""What configuration files say holds in every command, and every command says where it stands."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def project(accel, tmp_path):
    """A project that pins npu and blocks what a distribution brings; commands run below its folder."""
    accel.install("npu", priority=990)
    accel.install("off", priority=995)
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    (below.parent / ".git").mkdir()
    file = below.parent / "accel.toml"
    file.write_text('accelerator = "npu"\nblock = ["@Accel_Off", "mlu"]\n')
    return file, below


def test_each_command_says_in_which_file_and_line_it_stands(accel, project):
    file, below = project
    pinned, blocked = (
        f"accelerator = 'npu' in {file}, line 1",
        f"block = ['@Accel_Off', 'mlu'] in {file}, line 2",
    )
    why = accel("why", cwd=below, COLUMNS="400").stdout
    assert why.startswith(f"npu (accel-npu 1.5) would be chosen: pinned by {pinned}.\n")
    assert f"Configuration files\n  DS_ACCELERATOR  {pinned}\n  ACCEL_BLOCK     {blocked}\n" in why
    document = accel.json("why", cwd=below)
    assert document["sources"] == {"DS_ACCELERATOR": pinned, "ACCEL_BLOCK": blocked}
    assert document["environ"] == {}
    assert f"* pinned by {pinned}; `accel why` says more." in accel("list", cwd=below, COLUMNS="400").stdout
    (verdict,) = accel.json("why", "off", status=1, cwd=below)["backends"]
    assert (verdict["status"], verdict["reason"]) == ("blocked", f"{blocked} names it")
    assert verdict["hint"] == f"take @accel-off out of {blocked}"
    assert verdict["standing"] == f"npu would be chosen by {pinned}."
    assert accel.json("why", cwd=below, DS_ACCELERATOR="cpu")["sources"] == {"ACCEL_BLOCK": blocked}


def test_the_variables_for_other_hosts_are_those_of_the_files(accel, project):
    _, below = project
    expected = {"DS_ACCELERATOR": "npu", "ACCEL_BLOCK": "@Accel_Off,mlu", "ACCEL_CONFIG": "none"}
    document = json.loads(accel("env", "--format", "json", cwd=below).stdout)
    assert {name: document.get(name) for name in expected} == expected


@pytest.mark.parametrize("command", [["list"], ["why"], ["info"], ["env"], ["ops"]])
def test_a_file_that_is_bad_stops_every_command_with_its_line(accel, project, command):
    file, below = project
    file.write_text('\nblok = ["npu"]\n')
    done = accel(*command, cwd=below, COLUMNS="400")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert f"{file}, line 2: 'blok' is no setting of accel-core. Did you mean 'block'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_is_warned_of_what_is_not_obeyed_and_its_errors_name_the_file(accel, project, tmp_path):
    """The user's own file is locked against whatever a downloaded project says."""
    file, below = project
    file.write_text("block = []\n")
    own = tmp_path / "config" / "accel" / "accel.toml"
    own.parent.mkdir(parents=True)
    own.write_text('block = ["off"]\nlock = ["block"]\n')
    (tmp_path / "named.toml").write_text('accelerator = "nothing"\n')
    code = """
import json, os, warnings
import accel_core
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    selection = accel_core.selection()
told = [(w.category.__name__, str(w.message)) for w in caught]
accel_core.set_accelerator(None)
os.environ["ACCEL_CONFIG"] = "../../named.toml"
try:
    accel_core.get_accelerator()
except accel_core.BackendNotFoundError as error:
    print(json.dumps([str(selection), told, str(error)]))
"""
    variables = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    selection, told, error = accel.world.child(code, cwd=below, strict=False, variables=variables).answer
    assert selection.startswith("npu (accel-npu 1.5): the highest-ranking usable one.")
    assert f"  ACCEL_BLOCK: block = ['off'] in {own}, line 1\n" in selection
    note = f"block = [] in {file}, line 1 is not obeyed: block is locked by {own}, line 2."
    assert told == [["SettingWarning", note]]
    assert error.startswith(f"accelerator = 'nothing' in {tmp_path / 'named.toml'}, line 1: no installed")
