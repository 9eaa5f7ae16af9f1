"""`./dev`: what a session does is said and not run, and a diff gets the tests that are near it."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_tests.tools import TREE, load

_BOOTSTRAP = load("bootstrap")
_TOUCHED = load("touched")


def test_help_of_a_session_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(_BOOTSTRAP, "ensure_environment", lambda: pytest.fail("an environment was made"))
    assert _BOOTSTRAP.main(["lint", "tests", "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("./dev lint\n\nCheck style (ruff)")
    assert "Arguments go to pytest: ./dev tests PATH -k WORD" in told
    assert "go to pytest: ./dev lint" not in told


@pytest.mark.parametrize(
    ("changed", "first", "among", "without"),
    [
        (
            "src/accel_core/cli/commands/list.py",
            "cli/test_list.py",
            "test_budgets.py",
            "detection/test_probe.py",
        ),
        (
            "src/accel_core/_support/child.py",
            "internal/test_child.py",
            "detection/test_survey.py",
            "cli/test_list.py",
        ),
        ("tests/cli/test_why.py", "cli/test_why.py", "cli/test_why.py", "cli/test_list.py"),
        ("tools/release.py", "test_release.py", "test_release.py", "test_ci.py"),
        ("README.md", "truth/test_messages_true.py", "truth/test_outside.py", "cli/test_list.py"),
    ],
)
def test_the_nearest_tests_come_first(changed, first, among, without):
    found = _TOUCHED.near_tests(TREE, [changed], ["tests/fuzz"])
    assert found[0] == f"tests/{first}"
    assert f"tests/{among}" in found
    assert f"tests/{without}" not in found


def test_a_plugin_gets_its_own_tests_but_not_those_of_another_session():
    found = _TOUCHED.near_tests(
        TREE, ["plugins/accel_npu/src/accel_npu/device.py"], ["plugins/accel_npu/tests/real"]
    )
    own = [name for name in found if name.startswith("plugins/")]
    assert own == found[: len(own)]
    assert {Path(name).parent.as_posix() for name in own} == {"plugins/accel_npu/tests"}


def test_a_change_without_a_test_near_it_has_none():
    assert _TOUCHED.near_tests(TREE, ["changelog.d/25.misc.1.md"], []) == []


def test_what_no_time_is_left_for_is_skipped(monkeypatch):
    monkeypatch.setenv(_TOUCHED.UNTIL, "0")
    with pytest.raises(pytest.skip.Exception, match="no time is left"):
        _TOUCHED.pytest_runtest_setup()
    monkeypatch.delenv(_TOUCHED.UNTIL)
    _TOUCHED.pytest_runtest_setup()
