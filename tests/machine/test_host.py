"""Files, platform, NUMA nodes and cores, on trees built on disk."""

import os
import sys

import pytest

from accel_core import machine as host

# --- Files and platform --------------------------------------------------------------------------------


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


# --- NUMA nodes and cores ------------------------------------------------------------------------------


class TestNuma:
    def write(self, machine, *lists):
        for node, cores in enumerate(lists):
            machine.write(f"sys/devices/system/node/node{node}/cpulist", f"{cores}\n")

    def test_nodes_with_cores_count(self, machine):
        self.write(machine, "0-31", "32-63", "")  # the third has memory only, as with CXL or HBM
        assert host.numa_node_count(machine.path) == 2

    def test_at_least_one(self, machine):
        assert host.numa_node_count(machine.path) == 1

    def test_only_folders_of_nodes_are_nodes(self, machine):
        self.write(machine, "0-1", "2-3")
        for name in ("nodes", "node", "7", "has_cpu"):
            machine.write(f"sys/devices/system/node/{name}/cpulist", "0-1\n")
        assert host.numa_node_count(machine.path) == 2


def test_this_process_says_what_it_may_use():
    if hasattr(os, "sched_getaffinity"):
        assert host.allowed_cores() == os.sched_getaffinity(0)


def test_where_nothing_can_be_bound_nothing_is(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert host.allowed_cores() is None
