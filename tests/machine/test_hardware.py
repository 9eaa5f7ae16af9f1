"""Device nodes, PCI, platforms and NUMA nodes, on trees built on disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

from accel_core.backend import Backend
from accel_core.machine import hardware
from accel_core.machine.hardware import (
    Evidence,
    PciDevice,
    device_nodes,
    evidence,
    known_hardware,
    matches_pci,
    numa_nodes_with_cores,
    pci_devices,
    platform_matches,
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
    assert pci_devices(machine.path) == ()


def test_a_machine_without_sys_has_no_pci_devices(machine):
    assert pci_devices(machine.path) == ()


def test_this_machine_can_be_read():
    assert all(len(d.vendor) == len(d.device) == 4 and len(d.class_code) == 6 for d in pci_devices())
    assert isinstance(known_hardware(), tuple)
    assert numa_nodes_with_cores() >= 1


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
    assert matches_pci(H200, pattern) is fits


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
        found = evidence(backend(device_nodes=("/dev/x",), pci_ids=("10de",)), machine.path)
        assert found == Evidence()
        assert not found
        assert str(found) == ""

    def test_says_what_is_there(self, machine):
        machine.pci(H200.address, H200.vendor, H200.device, H200.class_code)
        machine.pci("0000:00:05.0", "10de", "22a3", "068000")  # an NVSwitch is no GPU
        machine.write("dev/nvidia0")
        machine.write("dev/nvidia1")
        found = evidence(backend(device_nodes=("/dev/nvidia[0-9]*",), pci_ids=("10de/03",)), machine.path)
        assert found
        assert str(found) == "/dev/nvidia0, /dev/nvidia1; PCI 10de:2335 at 0000:00:04.0"

    def test_nodes_alone(self, machine):
        machine.write("dev/nvidia0")
        assert str(evidence(backend(device_nodes=("/dev/nvidia[0-9]*",)), machine.path)) == "/dev/nvidia0"

    def test_many_cards_are_counted_not_listed(self, machine):
        for i in range(16):
            machine.write(f"dev/davinci{i}")
        found = evidence(backend(device_nodes=("/dev/davinci[0-9]*",)), machine.path)
        assert str(found) == "/dev/davinci0, /dev/davinci1, /dev/davinci2, /dev/davinci3 and 12 more"
        assert len(found.nodes) == 16

    def test_cannot_tell_outside_linux(self, machine, monkeypatch):
        machine.write("dev/nvidia0")
        monkeypatch.setattr(sys, "platform", "win32")
        assert evidence(backend(device_nodes=("/dev/nvidia[0-9]*",)), machine.path) is None


class TestKnownHardware:
    def labels(self, machine):
        return [known.label for known in known_hardware(machine.path)]

    def test_an_empty_machine(self, machine):
        assert known_hardware(machine.path) == ()

    def test_nvidia(self, machine):
        machine.pci(H200.address, H200.vendor, H200.device, H200.class_code)
        (known,) = known_hardware(machine.path)
        assert (known.label, known.backend, known.distribution) == ("NVIDIA GPU", "cuda", "accel-cuda")
        assert str(known.evidence) == "PCI 10de:2335 at 0000:00:04.0"
        assert not known.integrated

    @pytest.mark.parametrize(
        ("vendor", "device", "class_code", "name"),
        [
            ("1234", "1111", "030000", "QEMU standard VGA"),
            ("1af4", "1050", "038000", "VirtIO GPU"),
            ("1b36", "0100", "030000", "QXL"),
            ("15ad", "0405", "030000", "VMware SVGA"),
            ("1414", "5353", "030000", "Hyper-V"),
            ("1013", "00b8", "030000", "Cirrus"),
            ("1a03", "2000", "030000", "ASPEED console"),
            ("102b", "0536", "030000", "Matrox console"),
            ("1002", "515e", "030000", "ATI ES1000 console"),
            ("1002", "aaf0", "040300", "AMD sound"),
            ("10de", "22a3", "068000", "NVSwitch"),
            ("19e5", "a250", "120000", "Kunpeng ZIP engine"),
            ("8086", "7d1d", "120000", "Intel NPU"),
        ],
    )
    def test_what_is_no_accelerator(self, machine, vendor, device, class_code, name):
        machine.pci("0000:00:02.0", vendor, device, class_code)
        assert self.labels(machine) == []

    @pytest.mark.parametrize(
        ("vendor", "device", "class_code", "label"),
        [
            ("1002", "744c", "030000", "AMD GPU"),
            ("1002", "74a1", "120000", "AMD GPU"),
            ("19e5", "d802", "120000", "Ascend NPU"),
            ("1da3", "1020", "120000", "Intel Gaudi"),
            ("cabc", "0370", "120000", "Cambricon MLU"),
        ],
    )
    def test_by_pci(self, machine, vendor, device, class_code, label):
        machine.pci("0000:81:00.0", vendor, device, class_code)
        assert self.labels(machine) == [label]

    @pytest.mark.parametrize(
        ("node", "label"),
        [
            ("/dev/nvidia0", "NVIDIA GPU"),
            ("/dev/nvhost-ctrl-gpu", "NVIDIA GPU"),
            ("/usr/lib/wsl/lib/libcuda.so.1", "NVIDIA GPU"),
            ("/dev/kfd", "AMD GPU"),
            ("/dev/davinci7", "Ascend NPU"),
            ("/dev/cambricon_dev0", "Cambricon MLU"),
            ("/dev/tcaicard0", "Tecorigin SDAA card"),
            ("/dev/biren/card_0", "Biren GPU"),
        ],
    )
    def test_by_node(self, machine, node, label):
        machine.write(node)
        assert self.labels(machine) == [label]

    @pytest.mark.parametrize(
        "node",
        [
            "/dev/nvidiactl",
            "/dev/davinci_manager",
            "/dev/sdaa",
            "/dev/dxg",
            "/dev/dri/renderD128",
            "/dev/accel/accel0",
        ],
    )
    def test_nodes_that_prove_nothing(self, machine, node):
        machine.write(node)
        assert self.labels(machine) == []

    def test_intel_discrete_and_integrated_are_told_apart(self, machine):
        machine.pci("0000:00:02.0", "8086", "a780", "030000")
        machine.pci("0000:03:00.0", "8086", "e20b", "030000")
        found = {k.label: (str(k.evidence), k.integrated) for k in known_hardware(machine.path)}
        assert found == {
            "Intel discrete GPU": ("PCI 8086:e20b at 0000:03:00.0", False),
            "Intel integrated GPU": ("PCI 8086:a780 at 0000:00:02.0", True),
        }

    def test_apple_by_platform(self, machine, monkeypatch):
        machine.write("dev/nvidia0")  # not looked at: this is no Linux
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr("platform.machine", lambda: "arm64")
        (known,) = known_hardware(machine.path)
        assert (known.backend, str(known.evidence)) == ("mps", "Apple silicon")

    def test_every_backend_has_its_distribution(self):
        assert hardware.FIRST_PARTY["cuda"] == "accel-cuda"
        assert all(distribution == f"accel-{name}" for name, distribution in hardware.FIRST_PARTY.items())


@pytest.mark.parametrize(
    ("platform", "machine_name", "wanted", "fits"),
    [
        ("linux", "x86_64", (), True),
        ("linux", "x86_64", ("linux",), True),
        ("linux", "x86_64", ("win32", "linux-x86_64"), True),
        ("linux", "x86_64", ("linux-aarch64",), False),
        ("darwin", "arm64", ("darwin-arm64",), True),
        ("darwin", "x86_64", ("darwin-arm64",), False),
        ("win32", "AMD64", ("win32-amd64",), True),
        ("win32", "AMD64", ("linux", "darwin"), False),
    ],
)
def test_platforms(monkeypatch, platform, machine_name, wanted, fits):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("platform.machine", lambda: machine_name)
    assert platform_matches(wanted) is fits


class TestNuma:
    def test_nodes_with_cores_count(self, machine):
        for node, cores in enumerate(["0-31", "32-63", ""]):  # the third has memory only, as with CXL or HBM
            machine.write(f"sys/devices/system/node/node{node}/cpulist", f"{cores}\n")
        assert numa_nodes_with_cores(machine.path) == 2

    def test_at_least_one(self, machine):
        assert numa_nodes_with_cores(machine.path) == 1


def test_importing_it_needs_neither_torch_nor_psutil():
    code = (
        "import sys, accel_core.machine.hardware, accel_core.machine.visible_devices;"
        "print([m for m in ('torch', 'psutil', 'pluggy', 'importlib.metadata') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
