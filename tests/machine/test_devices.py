"""The PCI bus, device nodes and what both say of a backend, on trees built on disk."""

import sys

import pytest

from accel_core.backend import Backend, Hardware
from accel_core.hardware.bus import (
    PciDevice,
    device_nodes,
    evidence,
    matches_node,
    matches_pci,
    pci_devices,
)
from accel_train.launch.cores import numa_node_of

H200 = PciDevice("0000:00:04.0", "10de", "2335", "030200")


def backend(**given):
    return Backend(name="x", priority=1, device_type="x", **given)


def test_pci_devices_are_read_once_in_order(machine):
    machine.pci("0000:81:00.0", "10de", "2335", "030200")
    machine.pci("0000:00:04.0", "1AF4", "1041", "020000")
    assert pci_devices(machine.path) == (
        PciDevice("0000:00:04.0", "1af4", "1041", "020000"),
        PciDevice("0000:81:00.0", "10de", "2335", "030200"),
    )
    assert pci_devices(machine.path) is pci_devices(machine.path)
    assert pci_devices(f"{machine.path}/nowhere") == ()


def test_a_pci_device_that_cannot_be_read_is_left_out(machine):
    machine.write(
        "sys/bus/pci/devices/0000:00:01.0/modalias", "of:NgpuT(null)Cnvidia,ga10b\n"
    )
    machine.write("sys/bus/pci/devices/0000:00:02.0/modalias", "")
    (machine.root / "sys/bus/pci/devices/0000:00:03.0/modalias").mkdir(parents=True)
    later = "pci:v000010DEd00002335sv000010DEsd000016C1bc03sc02i00"
    machine.write("sys/bus/pci/devices/0000:00:04.0/modalias", f"{later}p01\n")
    machine.write(
        "sys/bus/pci/devices/0000:00:05.0/modalias", later.replace("bc", "kc")
    )
    assert pci_devices(machine.path) == ()


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
    assert matches_pci(H200, ["ffff", pattern]) is fits, "as one of several patterns"


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


NVIDIA, DAVINCI = "/dev/nvidia[0-9]*", "/dev/davinci[0-9]*"
ON_BUS, SWITCH = "10de:2335 030200", "10de:22a3 068000"  # an NVSwitch is no GPU
#: What is declared, what there is, and what is said of it.
EVIDENCE = {
    "nothing declared means cannot tell": (Hardware(), ["/dev/nvidia0"], None),
    "looked and found nothing": (Hardware(nodes=("/dev/x",), pci_ids=("10de",)), [], ""),
    "nodes alone": (Hardware(nodes=(NVIDIA,)), ["/dev/nvidia0", ON_BUS], "/dev/nvidia0"),
    "PCI ids alone": (Hardware(pci_ids=("10de",)), [ON_BUS], "PCI 10de:2335 at 0000:81:00.0"),
    "no GPU": (Hardware(pci_ids=("10de/03",)), [SWITCH], ""),
    "both": (
        Hardware(nodes=(NVIDIA,), pci_ids=("10de/03",)), ["/dev/nvidia0", "/dev/nvidia1", ON_BUS],
        "/dev/nvidia0, /dev/nvidia1; PCI 10de:2335 at 0000:81:00.0",
    ),
    "many are counted, not listed": (
        Hardware(nodes=(DAVINCI,)), [f"/dev/davinci{number}" for number in range(16)],
        "/dev/davinci0, /dev/davinci1, /dev/davinci2, /dev/davinci3 and 12 more",
    ),
    "four are listed": (
        Hardware(nodes=(DAVINCI,)), [f"/dev/davinci{number}" for number in range(4)],
        "/dev/davinci0, /dev/davinci1, /dev/davinci2, /dev/davinci3",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("hardware", "signs", "text"), EVIDENCE.values(), ids=EVIDENCE)
def test_evidence(machine, hardware, signs, text):
    for sign in signs:
        machine.sign(sign)
    found = evidence(backend(hardware=hardware), machine.path)
    if text is None:
        assert found is None
    else:
        assert str(found) == text
        assert bool(found) is (text != "")


def test_outside_linux_there_is_no_evidence_either_way(machine, monkeypatch):
    machine.sign("/dev/nvidia0")
    monkeypatch.setattr(sys, "platform", "win32")
    assert evidence(backend(hardware=Hardware(nodes=(NVIDIA,))), machine.path) is None


def test_a_wildcard_in_the_folder(machine):
    for name in ("dev/acme1/card0", "dev/acme1/control", "dev/acme2/card1"):
        machine.write(name)
    patterns = ("/dev/acme*/card[0-9]",)
    assert device_nodes(patterns, machine.path) == (
        "/dev/acme1/card0",
        "/dev/acme2/card1",
    )


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


@pytest.mark.parametrize(
    "text", ["", "nonsense", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-3\n4"]
)
def test_a_malformed_node_is_not_known(machine, text):
    machine.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", f"{text}\n")
    assert numa_node_of("0000:3B:00.0", machine.path) is None
