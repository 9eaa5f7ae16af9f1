"""What reports and figures name of a machine, on trees built on disk."""

from accel_core import hardware
from accel_tools.machine import cpu_name, driver_of, last_level_cache


def test_the_last_level_caches_are_added_up(computer, monkeypatch):
    monkeypatch.setattr(hardware, "allowed_cores", lambda: frozenset(range(4)))
    assert last_level_cache(computer.path) is None
    for core in range(8):
        for index, (level, size, shared) in enumerate((
            ("1", "48K", f"{core}"), ("2", "1024K", f"{core}"), ("3", "32768K", "0-1" if core < 2 else "2-7"),
        )):  # fmt: skip
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            for name, text in {
                "level": level,
                "size": size,
                "shared_cpu_list": shared,
            }.items():
                computer.write(f"{folder}/{name}", f"{text}\n")
    assert (
        last_level_cache(computer.path) == 64 * 2**20
    )  # one of the first two cores, one of the others
    monkeypatch.setattr(hardware, "allowed_cores", lambda: frozenset({1}))
    assert last_level_cache(computer.path) == 32 * 2**20
    computer.write("sys/devices/system/cpu/cpu1/cache/index2/size", "large")
    assert last_level_cache(computer.path) == 2**20


def test_the_processor_says_its_name(computer):
    assert cpu_name(
        computer.path
    )  # where no file says it, Python knows the architecture
    computer.write(
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some 9000: the best\nprocessor\t: 1\n",
    )
    assert cpu_name(computer.path) == "Some 9000: the best"


def test_a_device_has_the_driver_that_the_kernel_names(computer):
    bus = "sys/bus/pci/devices"
    computer.write(f"{bus}/0000:3b:00.0/uevent", "DRIVER=nvidia\nPCI_CLASS=30200\n")
    computer.write(f"{bus}/0000:3b:00.0/driver/module/version", "550.54.15\n")
    computer.write(f"{bus}/0000:3c:00.0/uevent", "PCI_CLASS=30000\nDRIVER=xe\n")
    computer.write(f"{bus}/0000:3d:00.0/uevent", "PCI_CLASS=30000\n")
    assert driver_of("0000:3B:00.0", computer.path) == "nvidia 550.54.15"
    assert driver_of("0000:3c:00.0", computer.path) == "xe"
    assert [
        driver_of(a, computer.path) for a in ("0000:3d:00.0", "0000:ff:00.0", None)
    ] == ["", "", ""]
