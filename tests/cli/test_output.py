"""Where an answer goes: terminals of any width, colour, files, and a stdout that is full or closed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from accel_tests import children
from accel_tests.children import SIMULATED

FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")


def started(accel, *arguments, stdout, **variables):
    """The command with this stdout."""
    path = [*accel.world.path, str(SIMULATED)]
    code = (
        f"import sys; sys.path[:] = {path!r}; sys.argv = ['accel', *{arguments!r}]; "
        "from accel_core.cli import main; main()"
    )
    with Path(stdout).open("wb") as file:
        return subprocess.run(
            [sys.executable, "-c", code], stdout=file, stderr=subprocess.PIPE, text=True, check=False,
            env=children.untraced(children.clean_environment(**variables)),
        )  # fmt: skip


@FULL
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_line_and_status_1(accel, arguments):
    done = started(accel, *arguments, stdout="/dev/full")
    assert done.returncode == 1
    assert done.stderr == "Error: stdout cannot be written: No space left on device\n"


def test_colour_can_be_asked_for_and_refused(accel):
    accel.install("npu")
    assert "\x1b[" in accel("list", FORCE_COLOR="1").stdout
    assert "\x1b[" not in accel("list", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[" not in accel("list", FORCE_COLOR="").stdout


def test_without_a_locale_nothing_is_lost(accel, tmp_path):
    accel.install("npu", r"ProbeResult(False, 'driver \u9a71', 'see 驱动')")
    bare = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["list"], ["why", "npu"]):
        done = started(accel, *arguments, stdout=tmp_path / "said", **bare)
        assert "Traceback" not in done.stderr
        assert rb"driver \u9a71" in (tmp_path / "said").read_bytes()


@pytest.mark.parametrize("columns", ["1", "many"])
def test_no_width_is_too_narrow(accel, columns):
    accel.install("npu", f"ProbeResult(False, {'reason ' * 9!r}, 'the last word')")
    said = " ".join(accel("list", COLUMNS=columns).stdout.split())
    assert said.count("reason") == 9
    assert "the last word" in said


def test_a_page_as_a_picture_a_web_page_and_text(accel, tmp_path):
    accel.install("npu", "ProbeResult(False, 'red <b>alert</b> & more')")
    kinds = {}
    for form in ("svg", "html", "TXT"):
        file = tmp_path / f"page.{form}"
        done = accel("list", "--export", str(file), COLUMNS="60")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        kinds[form] = file.read_text("utf-8")
    picture = "".join(ET.fromstring(kinds["svg"]).itertext()).replace("\xa0", " ")
    assert "red <b>alert</b> & more" in picture
    assert "accel list" in picture
    # Nothing in it is fetched: what it names are the kind of document and, in a comment, its maker.
    assert not re.search(r"url\(\"?http|<image|@font-face", kinds["svg"])
    assert "red &lt;b&gt;alert&lt;/b&gt; &amp; more" in kinds["html"]
    assert kinds["TXT"].startswith("  BACKEND")
    assert max(map(len, kinds["TXT"].splitlines())) <= 60


@pytest.mark.parametrize(
    ("file", "status", "message"),
    [
        ("nowhere/page.svg", 1, "Error: --export nowhere/page.svg: it cannot be written: No such file"),
        ("page.gif", 2, "Error: --export page.gif: expected a name that ends with .svg, .html, .txt."),
    ],
)
def test_an_export_that_cannot_be_is_one_error(accel, file, status, message):
    done = accel("list", "--no-probe", "--export", file)
    assert done.returncode == status
    assert done.stderr.splitlines()[-1].startswith(message)
    assert done.stdout == ""
    assert not os.path.exists(file)  # noqa: PTH110


@FULL
def test_an_export_to_a_full_disk_is_one_error(accel, tmp_path):
    (tmp_path / "page.svg").symlink_to("/dev/full")
    done = accel("list", "--no-probe", "--export", str(tmp_path / "page.svg"))
    assert done.returncode == 1
    assert (
        done.stderr == f"Error: --export {tmp_path}/page.svg: it cannot be written: No space left on device\n"
    )
