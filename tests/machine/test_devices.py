"""The PCI bus, device nodes and what both say of a backend, on trees built on disk."""

from __future__ import annotations

import sys

import pytest

from accel_core.backend import Backend, Hardware
from accel_core.machine.devices import (
    Evidence,
    PciDevice,
    device_nodes,
    evidence,
    matches_node,
    matches_pci,
    numa_node_of,
    pci_devices,
)

H200 = PciDevice("0000:00:04.0", "10de", "2335", "030200")


def backend(**given):
    return Backend(name="x", priority=1, device_type="x", **given)


def test_pci_devices_are_read_in_order(machine):
    machine.pci("0000:81:00.0", "10de", "2335", "030200")
    machine.pci("0000:00:04.0", "1AF4", "1041", "020000")
    assert pci_devices(machine.path) == (
        PciDevice("0000:00:04.0", "1af4", "1041", "020000"),
        PciDevice("0000:81:00.0", "10de", "2335", "030200"),
    )


def test_pci_devices_are_read_once(machine):
    assert pci_devices(machine.path) is pci_devices(machine.path)


def test_a_pci_device_that_cannot_be_read_is_left_out(machine):
    machine.write("sys/bus/pci/devices/0000:00:01.0/modalias", "of:NgpuT(null)Cnvidia,ga10b\n")
    machine.write("sys/bus/pci/devices/0000:00:02.0/modalias", "")
    (machine.root / "sys/bus/pci/devices/0000:00:03.0/modalias").mkdir(parents=True)
    later = "pci:v000010DEd00002335sv000010DEsd000016C1bc03sc02i00"
    machine.write("sys/bus/pci/devices/0000:00:04.0/modalias", f"{later}p01\n")
    machine.write("sys/bus/pci/devices/0000:00:05.0/modalias", later.replace("bc", "kc"))
    assert pci_devices(machine.path) == ()


def test_a_machine_without_sys_has_no_pci_devices(machine):
    assert pci_devices(machine.path) == ()


def test_this_machine_can_be_read():
    assert all(len(d.vendor) == len(d.device) == 4 and len(d.class_code) == 6 for d in pci_devices())


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("10de", True),
        ("10DE", True),
        ("10de:2335", True),
        ("10de:2336", False),
        ("10de/03", True),
        ("10de/0302", True),
        ("10de/12", False),
        ("10de:2335/03", True),
        ("10de:2335/12", False),
        ("1002", False),
        ("1002:2335", False),
    ],
)
def test_pci_patterns(pattern, fits):
    assert matches_pci(H200, [pattern]) is fits
    assert matches_pci(H200, ["ffff", pattern]) is fits


def test_device_nodes_in_natural_order_each_once(machine):
    for name in ("nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm"):
        machine.write(f"dev/{name}")
    nodes = device_nodes(("/dev/nvidia[0-9]*", "/dev/nvidia0"), machine.path)
    assert nodes == ("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia10")


def test_a_root_with_glob_characters_is_taken_literally(machine):
    root = machine.root / "a[0-9]*"
    (root / "dev").mkdir(parents=True)
    (root / "dev" / "kfd").touch()
    assert device_nodes(("/dev/kfd",), str(root)) == ("/dev/kfd",)


class TestEvidence:
    def test_nothing_declared_means_cannot_tell(self, machine):
        assert evidence(backend(), machine.path) is None

    def test_looked_and_found_nothing(self, machine):
        found = evidence(backend(hardware=Hardware(nodes=("/dev/x",), pci_ids=("10de",))), machine.path)
        assert found == Evidence()
        assert not found
        assert str(found) == ""

    def test_says_what_is_there(self, machine):
        machine.pci(H200.address, H200.vendor, H200.device, H200.class_code)
        machine.pci("0000:00:05.0", "10de", "22a3", "068000")  # an NVSwitch is no GPU
        machine.write("dev/nvidia0")
        machine.write("dev/nvidia1")
        found = evidence(
            backend(hardware=Hardware(nodes=("/dev/nvidia[0-9]*",), pci_ids=("10de/03",))), machine.path
        )
        assert found
        assert str(found) == "/dev/nvidia0, /dev/nvidia1; PCI 10de:2335 at 0000:00:04.0"

    def test_nodes_alone(self, machine):
        machine.write("dev/nvidia0")
        assert (
            str(evidence(backend(hardware=Hardware(nodes=("/dev/nvidia[0-9]*",))), machine.path))
            == "/dev/nvidia0"
        )

    def test_pci_ids_alone(self, machine):
        machine.pci(H200.address, H200.vendor, H200.device, H200.class_code)
        found = str(evidence(backend(hardware=Hardware(pci_ids=("10de",))), machine.path))
        assert found == "PCI 10de:2335 at 0000:00:04.0"

    def test_many_cards_are_counted_not_listed(self, machine):
        for i in range(4):
            machine.write(f"dev/xpu{i}")
        found = evidence(backend(hardware=Hardware(nodes=("/dev/xpu[0-9]*",))), machine.path)
        assert str(found) == "/dev/xpu0, /dev/xpu1, /dev/xpu2, /dev/xpu3"
        for i in range(16):
            machine.write(f"dev/davinci{i}")
        found = evidence(backend(hardware=Hardware(nodes=("/dev/davinci[0-9]*",))), machine.path)
        assert str(found) == "/dev/davinci0, /dev/davinci1, /dev/davinci2, /dev/davinci3 and 12 more"
        assert len(found.nodes) == 16

    def test_cannot_tell_outside_linux(self, machine, monkeypatch):
        machine.write("dev/nvidia0")
        monkeypatch.setattr(sys, "platform", "win32")
        assert evidence(backend(hardware=Hardware(nodes=("/dev/nvidia[0-9]*",))), machine.path) is None


def test_a_wildcard_in_the_folder(machine):
    for name in ("dev/acme1/card0", "dev/acme1/control", "dev/acme2/card1"):
        machine.write(name)
    patterns = ("/dev/acme*/card[0-9]",)
    assert device_nodes(patterns, machine.path) == ("/dev/acme1/card0", "/dev/acme2/card1")


def test_a_node_is_known_by_its_patterns():
    assert matches_node("/dev/nvidia0", ("/dev/kfd", "/dev/nvidia[0-9]*"))
    assert not matches_node("/dev/nvidia0", ("/dev/kfd",))


def test_a_device_is_near_the_node_that_the_kernel_says(machine):
    for address, text in {"0000:3b:00.0": "1", "0000:3c:00.0": "-1"}.items():
        machine.write(f"sys/bus/pci/devices/{address}/numa_node", f"{text}\n")
    assert numa_node_of("0000:3B:00.0", machine.path) == 1
    assert numa_node_of("0000:3c:00.0", machine.path) is None
    assert numa_node_of("0000:ff:00.0", machine.path) is None
    assert numa_node_of(None, machine.path) is None


@pytest.mark.parametrize("text", ["", "nonsense", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-3\n4"])
def test_a_malformed_node_is_not_known(machine, text):
    machine.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", f"{text}\n")
    assert numa_node_of("0000:3B:00.0", machine.path) is None
