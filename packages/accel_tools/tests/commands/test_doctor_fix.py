"""`accel doctor --fix`: nothing is done unasked; and `--list`, which names the checks."""

import sys

import click
import pytest
from accel_tests import children
from accel_tests.plugins import hook

from accel_tools.cli.fixes import FixOptions

SOURCE = """
from pathlib import Path
from accel_core import Check, CheckResult, Fix
WANTED = Path({wanted!r})
def look():
    return CheckResult('ok', 'it is there') if WANTED.exists() else CheckResult('warning', 'it is missing')
"""
CHECKS = hook(
    "accel_checks",
    "backend",
    "return [Check('file', 'The file', look, Fix('write the file', WANTED.touch))]",
)
#: `accel doctor --fix` at a terminal, at which `typed` is typed.
AT_A_TERMINAL = """
import os, sys
master, terminal = os.openpty()
os.write(master, {typed!r})
os.dup2(terminal, 0)
sys.stdin = os.fdopen(0)
"""


@pytest.fixture
def wanted(accel, tmp_path):
    """A file that a plugin's check wants, and its fix would write."""
    file = tmp_path / "wanted"
    accel.world.backend("card", 600, extra=SOURCE.format(wanted=str(file)) + CHECKS)
    return file


def test_without_a_terminal_nothing_is_fixed_unasked(accel, wanted):
    refused = accel("doctor", "--fix")
    assert refused.returncode == 2
    assert (
        "stdin is not a terminal. Next step: pass --yes to run all fixes, or --dry-run"
        in refused.stderr
    )
    assert not wanted.exists()


def test_a_dry_run_says_what_it_would_do_and_does_nothing(accel, wanted):
    done = accel("doctor", "--topic", "checks", "--fix", "--dry-run")
    assert done.returncode == 1
    assert "The fix would write the file. Nothing was changed." in done.stderr
    assert "card: it is missing" in done.stdout
    assert not wanted.exists()


def test_with_yes_a_fix_is_done_and_checked_again(accel, wanted):
    done = accel("doctor", "--topic", "checks", "--fix", "--yes").succeeded()
    assert "+ it is there" in done.stderr
    assert wanted.exists()


@pytest.mark.parametrize(
    ("given", "as_json", "message"),
    [
        ({"yes": True}, False, "--yes has no effect without --fix"),
        ({"dry_run": True}, False, "--dry-run has no effect without --fix"),
        ({"fix": True, "yes": True}, True, "leave out --json"),
    ],
)
def test_an_option_that_means_nothing_is_refused(given, as_json, message):
    flags = {"fix": False, "dry_run": False, "yes": False, "only_list": False, **given}
    with pytest.raises(click.UsageError, match=message):
        FixOptions(**flags).validate(as_json=as_json)


@pytest.mark.skipif(sys.platform == "win32", reason="terminals here are POSIX's")
@pytest.mark.parametrize(("typed", "status"), [(b"n\n", 1), (b"y\n", 0)])
def test_at_a_terminal_each_fix_is_asked_for(accel, wanted, typed, status):
    path = [*accel.world.path, children.SIMULATED]
    asked = children.accel("doctor", "--topic", "checks", "--fix")
    done = children.run(AT_A_TERMINAL.format(typed=typed) + asked, path)
    assert done.returncode == status, done.stderr
    assert "The fix would write the file. Apply it? [y/N]" in done.stderr
    assert wanted.exists() is (status == 0)


def test_the_page_of_list_has_each_check_with_its_plugin(accel, wanted):
    page = accel("doctor", "--list").succeeded().stdout
    [line] = [line for line in page.splitlines() if "file" in line]
    assert line.split()[:2] == ["card", "file"]
    assert "accel-card 1.0" in page
    assert not wanted.exists()


def test_the_document_of_list_has_the_topics_and_the_checks(accel, wanted):
    document = accel.json("doctor", "--list")
    assert {"name": "candidates", "title": "Backends"} in document["topics"]
    assert document["checks"] == [
        {"name": "file", "title": "The file", "backend": "card", "origin": "accel-card 1.0",
         "fix": "write the file"}
    ]  # fmt: skip
    assert not wanted.exists()
