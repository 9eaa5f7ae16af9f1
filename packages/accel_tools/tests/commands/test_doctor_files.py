"""`accel doctor --issue`, `--bundle` and `--html`: what is written, where, and that it names nobody."""

import json
import zipfile

import pytest

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
