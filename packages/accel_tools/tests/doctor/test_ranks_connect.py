"""Ranks of a host whose loopback interface is down."""

import shutil
import subprocess
import sys

import pytest

CODE = """
from accel_core.settings import Settings
from accel_tools.doctor.records import DiagnosticContext
from accel_tools.doctor.topics import ranks_connect
[finding] = ranks_connect.topic(2, 60).examine(DiagnosticContext(Settings(), {}))
print(finding.code, finding.step, sep="; ")
"""


def can_unshare():
    program = shutil.which("unshare")
    if program is None:
        return False
    command = [program, "--net", "--map-root-user", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs a network namespace of its own")
def test_a_host_that_cannot_connect_to_itself_is_named_at_once():
    command = ["unshare", "--net", "--map-root-user", sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "ranks.no-loopback; run as root: ip link set lo up\n"
