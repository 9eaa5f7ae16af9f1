"""Where a variable comes from, told by the processes above."""

from __future__ import annotations

import os
import sys

import pytest
from accel_testing import children

from accel_core.machine.ancestors import origin_of_variable


@pytest.fixture
def process(machine):
    def write(pid: int, parent: int, command: str, *variables: str) -> None:
        machine.write(f"/proc/{pid}/environ", "\0".join(("HOME=/root", *variables, "")))
        machine.write(f"/proc/{pid}/status", f"Name:\t{command}\nPPid:\t{parent}\n")
        machine.write(f"/proc/{pid}/comm", f"{command}\n")

    return write


def test_the_first_that_was_started_with_it_and_who_started_that(machine, process):
    process(1, 0, "systemd")
    process(20, 1, "raylet", "CUDA_VISIBLE_DEVICES=0,1")
    process(30, 20, "worker", "CUDA_VISIBLE_DEVICES=")
    process(40, 30, "python", "CUDA_VISIBLE_DEVICES=")

    def origin(value: str, pid: int) -> str:
        return origin_of_variable("CUDA_VISIBLE_DEVICES", value, machine.path, pid)

    assert origin("", 40) == "process 30 (worker), started by process 20 (raylet)"
    assert origin("0,1", 20) == "process 20 (raylet), started by process 1 (systemd)"
    assert origin("1", 40) == ""  # it was set since
    assert origin("", 99) == ""  # no such process


def test_it_may_come_from_the_first_process_of_all(machine, process):
    process(1, 0, "init", "ZE_AFFINITY_MASK=0")
    process(7, 1, "python", "ZE_AFFINITY_MASK=0")
    assert origin_of_variable("ZE_AFFINITY_MASK", "0", machine.path, 7) == "process 1 (init)"
    process(1, 7, "a loop", "ZE_AFFINITY_MASK=0")
    assert origin_of_variable("ZE_AFFINITY_MASK", "0", machine.path, 7)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_real_processes():
    code = (
        "from accel_core.machine.ancestors import origin_of_variable\n"
        "print(origin_of_variable('ZE_AFFINITY_MASK', '0.1'))"
    )
    environ = children.untraced({**os.environ, "ZE_AFFINITY_MASK": "0.1"})
    said = children.run_python(["-c", code], environ).stdout
    assert f", started by process {os.getpid()} (" in said
