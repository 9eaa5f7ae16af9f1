"""`accel doctor`: the files that it writes, which name nobody; and `--fix`, where nothing is done unasked."""

import json
import sys
import zipfile

import click
import pytest
from accel_tests import children
from accel_tests.plugins import hook

from accel_tools.cli.mending import Mending

# ---------------------------------------------------------------------------- doctor files
# `accel doctor --issue`, `--bundle` and `--html`: what is written, where, and that it names nobody.


SECRETS = {"HF_TOKEN": "hf_verysecrettoken", "USER": "carolina", "ACME_LICENCE": "wintermute"}


@pytest.fixture
def broken(accel, tmp_path):
    """A vendor whose package fails, and says more than strangers should read."""
    said = (
        f"libacme.so: cannot open {tmp_path}/private work/libacme.so for carolina: wintermute, "
        "https://carolina:hf_verysecrettoken@index.acme.internal/simple, card GPU-8932f937-d72c-4106"
    )
    accel.world.module("torch_acme", f"raise ImportError({said!r})")
    accel.world.backend("acme", 700, vendor_import="torch_acme")
    accel.install("npu", priority=500)
    return accel


def test_all_three_tell_what_is_wrong_and_name_nobody(broken, tmp_path):
    bundle, page, home = tmp_path / "visit.zip", tmp_path / "visit.html", str(tmp_path)
    done = broken("doctor", "--issue", "--bundle", str(bundle), "--html", str(page), HOME=home, **SECRETS)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(
        "### accel doctor\n\n~~~text\nnpu is chosen, and 2 things are wrong, first acme: "
    )
    assert "! acme: broken: torch_acme failed: ImportError: libacme.so: cannot open" in done.stdout
    assert "~/libacme.so for <user>: <$ACME_LICENCE>, https://<host>" in done.stdout
    assert "card GPU-<uuid>" in done.stdout
    assert "accel-npu 1.5 is installed beside accel-core" in done.stdout
    assert f"{bundle} is written" in done.stderr
    archive = zipfile.ZipFile(bundle)
    files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert list(files) == ["report.json", "report.md", "distributions.txt", "log.txt", "machine.json"]
    assert files["report.md"].strip() == done.stdout.strip()
    report = json.loads(files["report.json"])
    assert [row["name"] for row in report["ranking"]][:2] == ["acme", "npu"]
    assert report["versions"]["accel-npu"] == "1.5"
    assert "accel-npu==1.5" in files["distributions.txt"].splitlines()
    assert "acme: broken, after" in files["log.txt"]
    # What was written for the log did not reach the terminal.
    assert "[accel " not in done.stderr
    shown = page.read_text()
    assert shown.startswith("<!DOCTYPE html>")
    assert "://" not in shown.replace("https://&lt;host&gt;", "")  # it asks nobody for anything
    for told in ("torch_acme failed", "Ranking", "accel-npu", "Versions"):
        assert told in shown
    for text in (*files.values(), shown):
        for secret in (*SECRETS.values(), str(tmp_path), "private work", "acme.internal"):
            assert secret not in text
    setup = broken("setup", "--machine", str(bundle), "--format", "pip")
    assert (setup.returncode, setup.stdout.partition(" torch")[0]) == (0, "pip install"), setup.stderr


def test_what_is_refused_leaves_the_file_that_is_there(broken, tmp_path):
    there = tmp_path / "visit.html"
    there.write_text("mine")
    done = broken("doctor", "--html", str(there))
    assert done.returncode == 1
    assert f"--html {there}: it exists already. Give another name, or --force to replace it." in done.stderr
    assert there.read_text() == "mine"
    assert "both write to stdout" in broken("doctor", "--issue", "--json").stderr


# ---------------------------------------------------------------------------- doctor fix
# `accel doctor --fix`: nothing is done unasked; and `--list`.


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
