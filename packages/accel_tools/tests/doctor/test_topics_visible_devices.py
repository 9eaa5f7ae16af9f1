"""The doctor's topic on visible devices: who sees what by which number, and what to write instead."""

from __future__ import annotations

import os
import sys

import pytest
from accel_tests import children, plugins
from accel_tests.computers import Computer
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import Backend, Hardware, InTorch, Visibility
from accel_core.machine import devices
from accel_core.settings import read
from accel_tools.doctor.records import Level, Visit
from accel_tools.doctor.topics import visible_devices
from accel_tools.doctor.topics.visible_devices import TOPIC, origin_of_variable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

NPU = {
    "visibility": Visibility(("NPU_VISIBLE_DEVICES",), grammar="ascending"),
    "hardware": Hardware(nodes=("/dev/npu[0-9]*",)),
}


@pytest.fixture
def said(torch_world, monkeypatch):
    """`said(nodes, **variables)`: the findings on a machine with so many nodes."""

    def examined(nodes: int, **variables: str):
        found = tuple(f"/dev/npu{i}" for i in range(nodes))
        monkeypatch.setattr(devices, "device_nodes", lambda patterns, root="/": found if patterns else ())
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return list(TOPIC.examine(Visit(read(variables), variables)))

    return examined


def test_nothing_is_set(said, torch_world):
    torch_world.backend("npu", **NPU)
    [finding] = said(2)
    assert (finding.level, finding.code) == (Level.OK, "visible-devices.unset")
    assert finding.facts == {"npu": "NPU_VISIBLE_DEVICES"}


def test_the_table_of_physical_and_logical_numbers(said, torch_world):
    torch_world.backend("npu", **NPU)
    [finding] = said(4, NPU_VISIBLE_DEVICES="1,3")
    assert (finding.level, finding.code, finding.about) == (Level.OK, "visible-devices.mapped", "npu")
    assert finding.what == "NPU_VISIBLE_DEVICES='1,3' shows 2 of 4 devices"
    assert list(finding.facts.items()) == [
        ("NPU_VISIBLE_DEVICES", "'1,3'"), ("physical 0", "not seen"), ("physical 1", "npu:0"),
        ("physical 2", "not seen"), ("physical 3", "npu:1"), ("devices that the vendor counts", "2"),
    ]  # fmt: skip


def test_ids_that_the_vendor_drops_without_a_word(said, torch_world):
    torch_world.backend("npu", **NPU)
    [finding] = said(1, NPU_VISIBLE_DEVICES="0,99")
    assert (finding.level, finding.code) == (Level.WARNING, "visible-devices.dropped")
    assert "there is no device 99" in finding.what
    assert finding.step == "export NPU_VISIBLE_DEVICES=0"
    [finding] = said(4, NPU_VISIBLE_DEVICES="0, 1")
    assert finding.what == "NPU_VISIBLE_DEVICES='0, 1': ' 1' ends the list"
    assert finding.step == "export NPU_VISIBLE_DEVICES=0,1"


def test_fewer_devices_than_were_asked_for(said, torch_world):
    """The nodes tell nothing, and the vendor counts two."""
    torch_world.backend("npu", **{**NPU, "visibility": Visibility(("NPU_VISIBLE_DEVICES",))})
    [finding] = said(0, NPU_VISIBLE_DEVICES="0,1,2")
    assert (finding.level, finding.code) == (Level.WARNING, "visible-devices.fewer")
    assert finding.what == "NPU_VISIBLE_DEVICES='0,1,2' names 3 devices, but the vendor sees 2"


def test_everything_is_hidden(said, torch_world):
    torch_world.backend("npu", **NPU)
    for value, why in (("", ""), ("1,1", ": the ids must ascend"), ("7", ": there is no device 7, ")):
        [finding] = said(2, NPU_VISIBLE_DEVICES=value)
        assert (finding.level, finding.code) == (Level.WARNING, "visible-devices.none")
        assert finding.what.startswith(f"NPU_VISIBLE_DEVICES={value!r} hides every device{why}")
        assert finding.step == "this machine has 2: name 0 or 1, or unset NPU_VISIBLE_DEVICES"


def test_of_devices_that_the_runtime_alone_knows_none_is_left(said, torch_world):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.backend("npu", accelerator="none_device:Simulated", **{**NPU, "hardware": Hardware()})
    [finding] = said(0, NPU_VISIBLE_DEVICES="99")
    assert finding.what == "NPU_VISIBLE_DEVICES='99' names 1 device, but the vendor sees none"
    assert finding.step == "unset NPU_VISIBLE_DEVICES"  # and not an empty list


def test_a_value_that_the_vendor_refuses(said, torch_world):
    torch_world.backend(
        "npu",
        **{**NPU, "visibility": Visibility(("NPU_VISIBLE_DEVICES",), grammar="modules")},
        extra=NO_DEVICE,
    )
    [finding] = said(2, NPU_VISIBLE_DEVICES="0,x,1")
    assert (finding.level, finding.code) == (Level.ERROR, "visible-devices.malformed")
    assert finding.step == "export NPU_VISIBLE_DEVICES=0,1"


def test_variables_of_devices_that_are_not_here_change_nothing(said, torch_world):
    torch_world.backend("npu", **{**NPU, "hardware": Hardware(pci_ids=("19e5:d802",))})
    [finding] = said(0, NPU_VISIBLE_DEVICES="")
    assert (finding.level, finding.code) == (Level.OK, "visible-devices.no-effect")
    assert finding.facts == {"NPU_VISIBLE_DEVICES": "''"}


def test_a_variable_that_another_one_overrules(said, torch_world):
    torch_world.backend(
        "npu",
        **{
            **NPU,
            "visibility": Visibility(("NPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), grammar="ascending"),
        },
    )
    [finding] = said(2, NPU_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="0")
    assert (finding.level, finding.code) == (Level.WARNING, "visible-devices.overruled")
    assert finding.step == "unset CUDA_VISIBLE_DEVICES"


def test_the_uuids_of_nvidias_driver(tmp_path):
    """As its /proc shows a GPU."""
    computer = Computer(tmp_path)
    for bus, uuid in (("0000:65:00.0", "GPU-77777777-5555"), ("0000:17:00.0", "GPU-1a2b3c4d-0000")):
        text = f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 55\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\n"
        computer.write(f"/proc/driver/nvidia/gpus/{bus}/information", text)
    cuda = Backend(name="cuda", priority=1, device_type="cuda", in_torch=InTorch(builds=("cuda",)))
    assert visible_devices._uuids(cuda, computer.path) == ["GPU-1a2b3c4d-0000", "GPU-77777777-5555"]
    other = Backend(name="npu", priority=1, device_type="npu")
    assert visible_devices._uuids(other, computer.path) == []


def test_who_brought_a_variable_that_hides_devices(torch_world):
    """In a process that was started with it: of what is set later the kernel tells nothing."""
    torch_world.backend("npu", **{**NPU, "hardware": Hardware()})
    code = """
import json, os
from accel_tools.doctor.records import Visit
from accel_tools.doctor.topics.visible_devices import TOPIC
from accel_core.settings import read
[finding] = TOPIC.examine(Visit(read(), os.environ))
print(json.dumps([os.getppid(), finding.code, dict(finding.facts)]))
"""
    parent, code, facts = torch_world.child(code, variables={"NPU_VISIBLE_DEVICES": ""}).answer
    assert code == "visible-devices.none"
    if sys.platform.startswith("linux"):
        assert f", started by process {parent} (" in facts["NPU_VISIBLE_DEVICES comes from"]


# --- Where a variable comes from: the processes above say it ---


@pytest.fixture
def machine(tmp_path) -> Computer:
    return Computer(tmp_path)


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
        "from accel_tools.doctor.topics.visible_devices import origin_of_variable\n"
        "print(origin_of_variable('ZE_AFFINITY_MASK', '0.1'))"
    )
    environ = children.untraced({**os.environ, "ZE_AFFINITY_MASK": "0.1"})
    said = children.run_python(["-c", code], environ).stdout
    assert f", started by process {os.getpid()} (" in said
