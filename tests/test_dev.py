"""`./dev`: a session's help, and the tests near a diff."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from accel_tests.tools import TREE, load

_BOOTSTRAP = load("bootstrap")
_RUNNING = load("running")
_AFFECTED = load("affected")


def test_help_of_a_session_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(
        _BOOTSTRAP, "ensure_environment", lambda: pytest.fail("an environment was made")
    )
    assert _BOOTSTRAP.main(["lint", "core", "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("./dev lint\n\nCheck style (ruff)")
    assert "Arguments go to pytest: ./dev core PATH -k WORD" in told
    assert "go to pytest: ./dev lint" not in told


def test_the_list_begins_with_three_sessions():
    first = _BOOTSTRAP.help_text(_BOOTSTRAP.sessions()).split("\n\n")[1]
    assert [line.split()[0] for line in first.splitlines()] == ["demo", "check", "test"]


def test_each_session_is_listed_once_but_those_of_the_lab():
    known = _BOOTSTRAP.sessions()
    listed = re.findall(r"(?m)^  ([\w-]+)  ", _BOOTSTRAP.help_text(known))
    assert sorted(listed) == sorted(
        name for name, session in known.items() if session.group != "lab"
    )


def test_the_list_has_the_sessions_that_nox_has():
    listing = [_RUNNING.DEV_PYTHON, "-m", "nox", "--list"]
    if not _RUNNING.DEV_PYTHON.is_file():
        pytest.skip("`./dev` has an environment with nox")
    done = subprocess.run(listing, cwd=TREE, capture_output=True, text=True, check=True)
    noxes = re.findall(r"(?m)^[*-] ([\w-]+)", done.stdout)
    assert {*noxes} == _BOOTSTRAP.sessions().keys()


def test_the_readme_of_the_lab_has_each_of_its_sessions():
    known = _BOOTSTRAP.sessions()
    lab = {name for name, session in known.items() if session.group == "lab"}
    readme = (TREE / "lab/README.md").read_text(encoding="utf-8")
    assert {*re.findall(r"(?m)^\| `\./dev ([\w-]+)`", readme)} == lab


def test_the_torch_of_a_sessions_environment_is_not_the_users_own(monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(_RUNNING.NOX / "all-tests"))
    assert _BOOTSTRAP.own_torch() is None
    monkeypatch.setattr(sys, "prefix", "/opt/venv")
    assert _BOOTSTRAP.own_torch()["version"]


class Change(NamedTuple):
    """A changed file, and tests that are the nearest to it, among those that are near, and far."""

    file: str
    nearest: str
    near: str
    far: str


CHANGES = [
    Change(
        "src/accel_core/cli/list.py",
        nearest="tests/cli/test_list.py",
        near="tests/test_budgets.py",
        far="tests/detection/test_probe.py",
    ),
    Change(
        "src/accel_core/sandbox/child.py",
        nearest="tests/internal/test_child.py",
        near="tests/test_budgets.py",
        far="tests/cli/test_list.py",
    ),
    Change(
        "tests/cli/test_why.py",
        nearest="tests/cli/test_why.py",
        near="tests/cli/test_why.py",
        far="tests/cli/test_list.py",
    ),
    Change(
        "tools/release.py",
        nearest="tests/test_release.py",
        near="tests/test_release.py",
        far="tests/test_ci.py",
    ),
    Change(
        "README.md",
        nearest="tests/truth/test_contributor_pages.py",
        near="tests/truth/test_outside.py",
        far="tests/cli/test_list.py",
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.file)
def test_the_nearest_tests_come_first(change):
    found = _AFFECTED.near_tests(TREE, [change.file], ["tests/fuzz"])
    assert found[0] == change.nearest
    assert change.near in found
    assert change.far not in found


def test_a_plugin_gets_its_own_tests_but_not_those_of_another_session():
    found = _AFFECTED.near_tests(
        TREE,
        ["plugins/accel_npu/src/accel_npu/device.py"],
        ["plugins/accel_npu/tests/real"],
    )
    own = [name for name in found if name.startswith("plugins/")]
    assert own == found[: len(own)]
    assert {Path(name).parent.as_posix() for name in own} == {"plugins/accel_npu/tests"}


def test_a_change_without_a_test_near_it_has_none():
    assert _AFFECTED.near_tests(TREE, ["changelog.d/25.misc.1.md"], []) == []


def test_a_test_that_no_time_is_left_for_is_skipped(monkeypatch):
    monkeypatch.setenv(_AFFECTED.UNTIL, "0")
    with pytest.raises(pytest.skip.Exception, match="no time is left"):
        _AFFECTED.pytest_runtest_setup()
    monkeypatch.delenv(_AFFECTED.UNTIL)
    _AFFECTED.pytest_runtest_setup()
