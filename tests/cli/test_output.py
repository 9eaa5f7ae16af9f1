"""Where an answer goes: terminals of any width, colour, files, and a stdout that is full or closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]], ids=" ".join)
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
