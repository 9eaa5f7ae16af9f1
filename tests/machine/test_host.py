"""Files, platform, NUMA nodes and cores, on trees built on disk."""

import os
import sys

import pytest

from accel_core import hardware as host
from accel_core.hardware.bus import (
    pci_devices,
)
from accel_core.hardware.placement import detect_placement
from accel_core.hardware.vendors import known_hardware


def quota(folder, time, period=100000):
    return {f"{folder}/cpu.cfs_quota_us": time, f"{folder}/cpu.cfs_period_us": period}


# Files, platform, NUMA nodes and cores, on trees built on disk.


def test_files_are_read_below_the_root(machine):
    machine.write("proc/thing", " text\n")
    assert host.read_text("/proc/thing", machine.path) == "text"
    assert host.names_in("/proc", machine.path) == ["thing"]
    assert host.path_exists("/proc/thing", machine.path)
    assert host.path_exists("/proc", machine.path)


@pytest.mark.parametrize("path", ["/absent", "/proc/thing/below", "/nul\0"])
def test_what_cannot_be_read_is_absent(machine, path):
    machine.write("proc/thing")
    assert host.read_text(path, machine.path) == ""
    assert host.names_in(path, machine.path) == []
    assert not host.path_exists(path, machine.path)


def test_a_file_of_many_reads_is_whole_and_leaves_nothing_open(machine):
    lines = [f"{number} mounted somewhere" for number in range(5000)]
    machine.write("proc/self/mountinfo", "\n".join(lines))

    def lowest_free():
        number = os.dup(0)
        os.close(number)
        return number

    before = lowest_free()
    assert host.read_text("/proc/self/mountinfo", machine.path).splitlines() == lines
    assert lowest_free() == before


@pytest.mark.parametrize(
    ("allowed", "there", "quota", "cores"),
    [
        (frozenset(range(4, 7)), 8, None, 3),
        (None, 8, None, 8),  # a system on which processes are not bound
        (None, None, None, 1),
        (frozenset(range(4, 7)), 8, 1.5, 2),
        (frozenset(range(4, 7)), 8, 5.0, 3),
        (frozenset(range(4, 7)), 8, 0.0, 1),
    ],
)
def test_as_many_cores_as_this_process_may_use_and_its_quota_is_worth(
    monkeypatch, allowed, there, quota, cores
):
    monkeypatch.setattr(host, "allowed_cores", lambda: allowed)
    monkeypatch.setattr(os, "cpu_count", lambda: there)
    monkeypatch.setattr(host, "cgroup_cpu_quota", lambda: quota)
    assert host.usable_cores() == cores


def test_a_folder_that_may_not_be_searched_is_absent(machine):
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root may search every folder")
    machine.write("closed/file", "text")
    (machine.root / "closed").chmod(0)
    try:
        assert not host.path_exists("/closed/file", machine.path)
        assert host.read_text("/closed/file", machine.path) == ""
    finally:
        (machine.root / "closed").chmod(0o700)


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
    assert host.platform_matches(wanted) is fits


def test_this_machine_can_be_asked():
    assert host.numa_node_count() >= 1
    for answer in (host.cgroup_memory_limit(), host.cgroup_memory_available()):
        assert answer is None or (type(answer) is int and answer >= 0)
    assert (host.cgroup_cpu_quota() or 1) > 0
    assert all(
        len(d.vendor) == len(d.device) == 4 and len(d.class_code) == 6
        for d in pci_devices()
    )
    assert detect_placement().container in (
        "",
        "docker",
        "podman",
        "kubernetes",
        "apptainer",
        "container",
    )
    assert isinstance(known_hardware(), tuple)
    if hasattr(os, "sched_getaffinity"):
        assert host.allowed_cores() == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (
            {"node0": "0-31", "node1": "32-63", "node2": ""},
            2,
        ),  # the third has memory only (CXL, HBM)
        ({}, 1),
        (
            {
                "node0": "0-1",
                "node1": "2-3",
                **dict.fromkeys(("nodes", "node", "7", "has_cpu"), "0-1"),
            },
            2,
        ),
    ],
)
def test_nodes_with_cores_count(machine, nodes, count):
    for name, cores in nodes.items():
        machine.write(f"sys/devices/system/node/{name}/cpulist", f"{cores}\n")
    assert host.numa_node_count(machine.path) == count


def test_where_nothing_can_be_bound_nothing_is(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert host.allowed_cores() is None
