"""Files, platform, NUMA nodes and cores, on trees built on disk."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_core.machine import host

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
        assert sorted(host.numa_nodes(machine.path)) == [0, 1]

    def test_at_least_one(self, machine):
        assert host.numa_node_count(machine.path) == 1

    def test_only_folders_of_nodes_are_nodes(self, machine):
        self.write(machine, "0-1")
        for name in ("nodes", "node", "7", "has_cpu"):
            machine.write(f"sys/devices/system/node/{name}/cpulist", "0-1\n")
        assert host.numa_nodes(machine.path) == {0: (0, 1)}

    @pytest.mark.parametrize("text", ["", "nonsense", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-3\n4"])
    def test_malformed_lists_count_as_absent(self, machine, text):
        self.write(machine, text)
        assert host.numa_nodes(machine.path) == {}


def test_hyper_threads_of_a_core_belong_together(machine):
    for core in range(8):
        file = f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        machine.write(file, f"{core % 4},{core % 4 + 4}\n")
    assert host.physical_cores(range(8), machine.path) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert host.physical_cores({7, 2, 3}, machine.path) == [(2,), (3, 7)]
    assert host.physical_cores([9], machine.path) == [(9,)]


def test_the_last_level_caches_are_added_up(machine, monkeypatch):
    monkeypatch.setattr(host, "allowed_cores", lambda: frozenset(range(4)))
    assert host.last_level_cache(machine.path) is None
    for core in range(8):
        for index, (level, size, shared) in enumerate((
            ("1", "48K", f"{core}"), ("2", "1024K", f"{core}"), ("3", "32768K", "0-1" if core < 2 else "2-7"),
        )):  # fmt: skip
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            for name, text in {"level": level, "size": size, "shared_cpu_list": shared}.items():
                machine.write(f"{folder}/{name}", f"{text}\n")
    assert host.last_level_cache(machine.path) == 64 * 2**20  # one of the first two cores, one of the others
    monkeypatch.setattr(host, "allowed_cores", lambda: frozenset({1}))
    assert host.last_level_cache(machine.path) == 32 * 2**20
    machine.write("sys/devices/system/cpu/cpu1/cache/index2/size", "large")
    assert host.last_level_cache(machine.path) == 2**20


def test_the_processor_says_its_name(machine):
    assert host.processor_name(machine.path)  # where no file says it, Python knows the architecture
    machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some 9000: the best\nprocessor\t: 1\n")
    assert host.processor_name(machine.path) == "Some 9000: the best"


@given(st.lists(st.integers(0, 500), unique=True).map(sorted))
def test_ranges_are_read_as_they_are_written(numbers):
    assert host.parse_ranges(host.format_ranges(numbers)) == (tuple(numbers) or None)


def test_this_process_says_what_it_may_use():
    if hasattr(os, "sched_getaffinity"):
        assert host.allowed_cores() == os.sched_getaffinity(0)


def test_where_nothing_can_be_bound_nothing_is(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert host.allowed_cores() is None


def test_importing_it_is_cheap():
    """The CPU's accelerator, and the worker that starts each rank, need nothing else of the machine."""
    code = (
        "import sys, accel_core; before = set(sys.modules); import accel_core.machine.host\n"
        "print(*sorted(m for m in set(sys.modules) - before"
        " if m.startswith('accel_core') or m in ('torch', 'psutil', 'platform', 'dataclasses', 'typing')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["accel_core.machine", "accel_core.machine.host"]
