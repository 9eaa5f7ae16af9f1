"""`accel doctor --fix`: nothing is done unasked; and `--list`."""

import sys

import click
import pytest
from accel_tests import children
from accel_tests.plugins import hook

from accel_tools.cli.mending import Mending

SOURCE = """
from pathlib import Path
from accel_core import Check, CheckResult, Fix
WANTED = Path({wanted!r})
def look():
    return CheckResult('ok', 'it is there') if WANTED.exists() else CheckResult('warning', 'it is missing')
"""
CHECKS = hook(
    "accel_checks", "backend", "return [Check('file', 'The file', look, Fix('write the file', WANTED.touch))]"
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


def test_nothing_is_done_unasked(accel, wanted):
    refused = accel("doctor", "--fix")
    assert refused.returncode == 2
    assert "stdin is not a terminal: give --yes to run all fixes, or --dry-run" in refused.stderr
    told = accel("doctor", "--topic", "checks", "--fix", "--dry-run")
    assert told.returncode == 1
    assert "It would write the file. Nothing was done." in told.stderr
    assert "card: it is missing" in told.stdout
    assert not wanted.exists()
    done = accel("doctor", "--topic", "checks", "--fix", "--yes").succeeded()
    assert "+ it is there" in done.stderr
    assert wanted.exists()


def test_options_that_mean_nothing_are_refused():
    for given, said in (
        ({"yes": True}, "--yes says how to fix"),
        ({"dry_run": True}, "--dry-run says how to fix"),
        ({"fix": True, "yes": True, "as_json": True}, "give it without --json"),
    ):
        flags = {"fix": False, "dry_run": False, "yes": False, "listing": False, "as_json": False, **given}
        as_json = flags.pop("as_json")
        with pytest.raises(click.UsageError, match=said):
            Mending(**flags).check(as_json=as_json)


@pytest.mark.skipif(sys.platform == "win32", reason="terminals here are POSIX's")
@pytest.mark.parametrize(("typed", "status"), [(b"n\n", 1), (b"y\n", 0)])
def test_at_a_terminal_each_is_asked_for(accel, wanted, typed, status):
    path = [*accel.world.path, children.SIMULATED]
    asked = children.accel("doctor", "--topic", "checks", "--fix")
    done = children.run(AT_A_TERMINAL.format(typed=typed) + asked, path)
    assert done.returncode == status, done.stderr
    assert "It would write the file. Do it? [y/N]" in done.stderr
    assert wanted.exists() is (status == 0)


def test_what_is_looked_into_is_listed(accel, wanted):
    said = accel("doctor", "--list").succeeded()
    assert [line.split()[:2] for line in said.stdout.splitlines() if "file" in line] == [["card", "file"]]
    assert "accel-card 1.0" in said.stdout
    document = accel.json("doctor", "--list")
    assert {"name": "candidates", "title": "Backends"} in document["topics"]
    assert document["checks"] == [
        {"name": "file", "title": "The file", "backend": "card", "origin": "accel-card 1.0",
         "fix": "write the file"}
    ]  # fmt: skip
    assert not wanted.exists()
