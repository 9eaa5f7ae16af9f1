"""The doctor's topic on visible devices: who sees what by which number, and what to write instead."""

import sys

import pytest
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import Hardware, Visibility
from accel_core.hardware import bus
from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics.visible_devices import (
    TOPIC,
    may_hide_devices,
    origin_of_variable,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

NPU = {
    "visibility": Visibility(("NPU_VISIBLE_DEVICES",), grammar="ascending"),
    "hardware": Hardware(nodes=("/dev/npu[0-9]*",)),
}


@pytest.fixture
def said(torch_world, monkeypatch):
    """`said(nodes, **variables)`: the findings on a machine with so many nodes."""

    def examined(nodes, **variables):
        found = tuple(f"/dev/npu{i}" for i in range(nodes))
        monkeypatch.setattr(
            bus, "device_nodes", lambda patterns, root="/": found if patterns else ()
        )
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return list(TOPIC.examine(DiagnosticContext(read(variables), variables)))

    return examined


OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR
BOTH = Visibility(("NPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), grammar="ascending")
#: More fields of the declaration, nodes of the machine, NPU_VISIBLE_DEVICES, and what is found: level, code,
#: words of the finding, next step.
FOUND = [
    ({}, 2, None, OK, "unset", "", ""),
    ({}, 4, "1,3", OK, "mapped", "NPU_VISIBLE_DEVICES='1,3' shows 2 of 4 devices", ""),
    # Ids that the vendor drops without a word.
    ({}, 1, "0,99", WARNING, "dropped", "there is no device 99", "export NPU_VISIBLE_DEVICES=0"),
    ({}, 2, "", WARNING, "none", "='' hides every device", "export NPU_VISIBLE_DEVICES=0,1"),
    ({"visibility": Visibility(("NPU_VISIBLE_DEVICES",), grammar="modules"), "extra": NO_DEVICE}, 2, "0,x,1",
     ERROR, "malformed", "", "export NPU_VISIBLE_DEVICES=0,1"),
    ({"visibility": Visibility(("NPU_VISIBLE_DEVICES",), grammar="modules"), "extra": NO_DEVICE}, 2, "x",
     ERROR, "malformed", "", "unset NPU_VISIBLE_DEVICES"),
    ({"hardware": Hardware(pci_ids=("19e5:d802",))}, 0, "", OK, "no-effect", "", ""),
    ({"visibility": BOTH}, 2, "1", WARNING, "overruled", "", "unset CUDA_VISIBLE_DEVICES"),
]  # fmt: skip
FACTS = {
    "unset": {"npu": "NPU_VISIBLE_DEVICES"},
    "no-effect": {"NPU_VISIBLE_DEVICES": "''"},
    "mapped": {
        "NPU_VISIBLE_DEVICES": "'1,3'", "physical 0": "not visible", "physical 1": "npu:0",
        "physical 2": "not visible", "physical 3": "npu:1", "devices that the vendor counts": "2",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "nodes", "value", "level", "code", "what", "step"), FOUND
)
def test_what_is_found(
    said, torch_world, fields, nodes, value, level, code, what, step
):
    torch_world.backend("npu", **{**NPU, **fields})
    given = {} if value is None else {"NPU_VISIBLE_DEVICES": value}
    if fields.get("visibility") is BOTH:
        given["CUDA_VISIBLE_DEVICES"] = "0"
    [finding] = said(nodes, **given)
    assert finding.level == level
    assert finding.code == f"visible-devices.{code}"
    assert what in finding.what
    assert finding.step == step
    if code in FACTS:
        assert list(finding.facts.items()) == list(FACTS[code].items())


def test_a_variable_that_hides_a_part_of_the_devices_is_told_from_one_that_shows_all(
    said, torch_world
):
    torch_world.backend("npu", **NPU)
    [part] = said(4, NPU_VISIBLE_DEVICES="1,3")
    [every] = said(2, NPU_VISIBLE_DEVICES="0,1")
    assert may_hide_devices(part) is True
    assert may_hide_devices(every) is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_variable_that_a_start_file_has_set_is_told(said, torch_world):
    """This process sets it after its start, as a start-up file of Python does."""
    torch_world.backend("npu", **NPU)
    [finding] = said(4, NPU_VISIBLE_DEVICES="1,3")
    assert "NPU_VISIBLE_DEVICES was set after Python had started" in finding.what


def test_who_brought_a_variable_that_hides_devices(torch_world):
    """In a process that was started with it: of what is set later the kernel tells nothing."""
    torch_world.backend("npu", **{**NPU, "hardware": Hardware()})
    code = """
import json, os
from accel_tools.doctor.records import DiagnosticContext
from accel_tools.doctor.topics.visible_devices import TOPIC
from accel_core.settings import read
[finding] = TOPIC.examine(DiagnosticContext(read(), os.environ))
print(json.dumps([os.getppid(), finding.code, dict(finding.facts)]))
"""
    parent, code, facts = torch_world.child(
        code, variables={"NPU_VISIBLE_DEVICES": ""}
    ).answer
    assert code == "visible-devices.none"
    if sys.platform.startswith("linux"):
        assert (
            f", started by process {parent} ("
            in facts["NPU_VISIBLE_DEVICES comes from"]
        )


# --- Where a variable comes from: the processes above say it ---


@pytest.fixture
def process(computer):
    def write(pid, parent, command, *variables):
        computer.write(
            f"/proc/{pid}/environ", "\0".join(("HOME=/root", *variables, ""))
        )
        computer.write(f"/proc/{pid}/status", f"Name:\t{command}\nPPid:\t{parent}\n")
        computer.write(f"/proc/{pid}/comm", f"{command}\n")

    return write


def test_the_first_that_was_started_with_it_and_who_started_that(computer, process):
    process(1, 0, "systemd")
    process(20, 1, "raylet", "CUDA_VISIBLE_DEVICES=0,1")
    process(30, 20, "worker", "CUDA_VISIBLE_DEVICES=")
    process(40, 30, "python", "CUDA_VISIBLE_DEVICES=")

    def origin(value, pid):
        return origin_of_variable("CUDA_VISIBLE_DEVICES", value, computer.path, pid)

    assert origin("", 40) == "process 30 (worker), started by process 20 (raylet)"
    assert origin("0,1", 20) == "process 20 (raylet), started by process 1 (systemd)"
    assert origin("1", 40) == ""  # it was set since
    assert origin("", 99) == ""  # no such process
    # It may come from the first process of all.
    for pid, parent in ((1, 0), (20, 1)):
        process(pid, parent, "init", "CUDA_VISIBLE_DEVICES=0")
    assert origin("0", 20) == "process 1 (init)"
    process(1, 20, "a loop", "CUDA_VISIBLE_DEVICES=0")
    assert origin("0", 20)
