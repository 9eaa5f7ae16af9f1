"""What reports and figures name of a machine, on trees built on disk."""

import pytest
from accel_tests.computers import Computer

from accel_core.toolkit import host
from accel_tools.machine import driver_of, last_level_cache, processor_name


@pytest.fixture
def machine(tmp_path):
    return Computer(tmp_path)


def test_the_last_level_caches_are_added_up(machine, monkeypatch):
    monkeypatch.setattr(host, "allowed_cores", lambda: frozenset(range(4)))
    assert last_level_cache(machine.path) is None
    for core in range(8):
        for index, (level, size, shared) in enumerate((
            ("1", "48K", f"{core}"), ("2", "1024K", f"{core}"), ("3", "32768K", "0-1" if core < 2 else "2-7"),
        )):  # fmt: skip
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            for name, text in {"level": level, "size": size, "shared_cpu_list": shared}.items():
                machine.write(f"{folder}/{name}", f"{text}\n")
    assert last_level_cache(machine.path) == 64 * 2**20  # one of the first two cores, one of the others
    monkeypatch.setattr(host, "allowed_cores", lambda: frozenset({1}))
    assert last_level_cache(machine.path) == 32 * 2**20
    machine.write("sys/devices/system/cpu/cpu1/cache/index2/size", "large")
    assert last_level_cache(machine.path) == 2**20


def test_the_processor_says_its_name(machine):
    assert processor_name(machine.path)  # where no file says it, Python knows the architecture
    machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some 9000: the best\nprocessor\t: 1\n")
    assert processor_name(machine.path) == "Some 9000: the best"


def test_a_device_has_the_driver_that_the_kernel_names(machine):
    bus = "sys/bus/pci/devices"
    machine.write(f"{bus}/0000:3b:00.0/uevent", "DRIVER=nvidia\nPCI_CLASS=30200\n")
    machine.write(f"{bus}/0000:3b:00.0/driver/module/version", "550.54.15\n")
    machine.write(f"{bus}/0000:3c:00.0/uevent", "PCI_CLASS=30000\nDRIVER=xe\n")
    machine.write(f"{bus}/0000:3d:00.0/uevent", "PCI_CLASS=30000\n")
    assert driver_of("0000:3B:00.0", machine.path) == "nvidia 550.54.15"
    assert driver_of("0000:3c:00.0", machine.path) == "xe"
    assert [driver_of(a, machine.path) for a in ("0000:3d:00.0", "0000:ff:00.0", None)] == ["", "", ""]
