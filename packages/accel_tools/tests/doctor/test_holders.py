"""Processes that have a device node open."""

import subprocess
import sys
from pathlib import Path

import pytest

from accel_tools.doctor.experiments.holders import describe_holders

SOURCE = (
    "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_another_process_that_has_the_device_open_is_named():
    command = [sys.executable, "-c", SOURCE, "/dev/zero"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        found = describe_holders(["/dev/zero"])
        process.stdin.close()
    assert f"process {process.pid} (" in found
    assert " has /dev/zero open" in found


def test_this_process_is_no_holder():
    node = Path("/dev/full")
    with node.open("rb"):
        assert describe_holders([str(node)]) == ""


def test_a_device_that_nobody_uses_has_no_holder():
    assert describe_holders(["/dev/no-such-device"]) == ""


def test_without_psutil_no_process_is_named(monkeypatch):
    """On a file system that is mounted with noexec, psutil cannot be imported."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert describe_holders(["/dev/null"]) == ""
