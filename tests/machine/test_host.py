"""Files, platform, NUMA nodes, cores, and what control groups allow of them, on trees built on disk."""

import os
import sys

import pytest

from accel_core import hardware as host
from accel_core.backend import Backend, Hardware
from accel_core.hardware.bus import (
    PciDevice,
    device_nodes,
    evidence,
    matches_node,
    matches_pci,
    pci_devices,
)
from accel_core.hardware.placement import placement
from accel_core.hardware.vendors import known_hardware
from accel_train.launch.cores import numa_node_of

# ---------------------------------------------------------------------------- host
# Files, platform, NUMA nodes and cores, on trees built on disk.


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
    for answer in (host.cgroup_memory_limit(), host.cgroup_memory_available()):
        assert answer is None or (type(answer) is int and answer >= 0)
    assert (host.cgroup_cpu_quota() or 1) > 0
    assert all(
        len(d.vendor) == len(d.device) == 4 and len(d.class_code) == 6
        for d in pci_devices()
    )
    assert placement().container in (
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


# --- NUMA nodes and cores ------------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------- cgroup
# What control groups allow of memory and of the processor, on trees built on disk.


GIB = 2**30
NO_LIMIT_V1 = 9223372036854771712
V2, V1, CPU_V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"


def v2(path):
    """The line of /proc/self/cgroup in version 2."""
    return f"0::{path}\n"


def v1(path, controller="memory"):
    return f"9:name=systemd:/\n4:{controller}:{path}\n3:cpuset:/\n"


def group(folder, limit=None, used=None, **files):
    """Files of a group in version 2: memory's and, in `cpu`, the processor's."""
    named = {
        "memory.max": limit,
        "memory.current": used,
        "memory.stat": files.get("stat"),
    }
    named["cpu.max"] = files.get("cpu")
    return {
        f"{folder}/{name}": text for name, text in named.items() if text is not None
    }


def old(folder, limit, used=None, stat=None):
    """The same in version 1."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    texts = zip(names, (limit, used, stat), strict=True)
    return {f"{folder}/{name}": text for name, text in texts if text is not None}


def quota(folder, time, period=100000):
    return {f"{folder}/cpu.cfs_quota_us": time, f"{folder}/cpu.cfs_period_us": period}


CACHE = f"anon {GIB}\nfile {5 * GIB}\ninactive_file {4 * GIB}\nactive_file {GIB}"
DOCKER = "/docker/abc"
#: The process's groups, the groups' files, and what they allow: limit, what is left of it, cores.
TREES = {
    "no groups": ("", {}, None, None, None),
    "no limit": (v2("/a/job"), group(f"{V2}/a/job", "max", GIB), None, None, None),
    "its own limit": (v2("/job"), group(f"{V2}/job", 8 * GIB, 3 * GIB), 8 * GIB, 5 * GIB, None),
    "the smallest up the tree": (
        v2("/s/pod/c"),
        group(f"{V2}/s", 16 * GIB, 9 * GIB) | group(f"{V2}/s/pod", 4 * GIB, 2 * GIB)
        | group(f"{V2}/s/pod/c", "max", GIB),
        4 * GIB, 2 * GIB, None,
    ),
    "a fuller parent": (
        v2("/s/pod"), group(f"{V2}/s", 16 * GIB, 15 * GIB) | group(f"{V2}/s/pod", 8 * GIB, 2 * GIB),
        8 * GIB, GIB, None,
    ),
    "file cache": (v2("/job"), group(f"{V2}/job", 8 * GIB, 6 * GIB, stat=CACHE), 8 * GIB, 6 * GIB, None),
    "never negative": (v2("/job"), group(f"{V2}/job", GIB, 5, stat="inactive_file 7"), GIB, GIB, None),
    "over the limit": (v2("/job"), group(f"{V2}/job", GIB, 2 * GIB), GIB, 0, None),
    "usage not readable": (v2("/job"), group(f"{V2}/job", GIB), GIB, GIB, None),
    "no memory at all": (v2("/job"), group(f"{V2}/job", 0), 0, 0, None),
    "own group mounted": (
        v2(f"{DOCKER}/inner"),
        group(V2, 2 * GIB, cpu="300000 100000") | group(f"{V2}/inner", 3 * GIB, cpu="max 100000"),
        2 * GIB, 2 * GIB, 3.0,
    ),
    **{
        f"a path out of it: {path}": (
            v2(path),
            group(V2, 2 * GIB) | group("elsewhere", 1) | group("sys/fs/elsewhere", 1),
            2 * GIB, 2 * GIB, None,
        )
        for path in ("/../elsewhere", "/docker/abc/../..", "/docker/abcd")
    },
    "v1, hierarchical cache": (
        v1(DOCKER),
        old(f"{V1}{DOCKER}", 8 * GIB, 6 * GIB, f"inactive_file 1\ntotal_inactive_file {GIB}")
        | old(V1, NO_LIMIT_V1, 50 * GIB),
        8 * GIB, 3 * GIB, None,
    ),
    "v1, no limit is a huge number": (v1("/"), old(V1, NO_LIMIT_V1), None, None, None),
    "hybrid, memory in v1": (v1("/job") + v2("/job"), old(f"{V1}/job", GIB), GIB, GIB, None),
    "the least quota": (
        v2("/a/b"),
        group(V2, cpu="max 100000") | group(f"{V2}/a", cpu="400000 100000")
        | group(f"{V2}/a/b", cpu="250000 100000"),
        None, None, 2.5,
    ),
    "the parent's quota": (
        v2("/a/b"), group(f"{V2}/a", cpu="50000 100000") | group(f"{V2}/a/b", cpu="250000 100000"),
        None, None, 0.5,
    ),
    "nonsense": ("nonsense\n", group(f"{V2}/a", cpu="50000 100000"), None, None, None),
    "v1, its own quota": (
        v1("/s/job", controller="cpu,cpuacct"),
        quota(CPU_V1, -1) | quota(f"{CPU_V1}/s", 800000) | quota(f"{CPU_V1}/s/job", 100000, 50000),
        None, None, 2.0,
    ),
    "v1, the parent's quota": (
        v1("/s/job", controller="cpu,cpuacct"),
        quota(f"{CPU_V1}/s", 800000) | quota(f"{CPU_V1}/s/job", -1), None, None, 8.0,
    ),
    "v1, own group mounted": (v1(DOCKER, controller="cpu,cpuacct"), quota(CPU_V1, 150000), None, None, 1.5),
    "v1, quota without a mount": ("5:cpu,cpuacct:/job\n", quota(f"{CPU_V1}/job", 200000), None, None, 2.0),
    "hybrid, quota in v1": (
        v1("/job", controller="cpu,cpuacct") + v2("/job"),
        quota(f"{CPU_V1}/job", 400000), None, None, 4.0,
    ),
    **{
        f"no number: {text[:12]!r}": (v2("/job"), group(f"{V2}/job", text), None, None, None)
        for text in ("", "-1", "lots", "9" * 5000, "\N{SUPERSCRIPT TWO}")
    },
    **{
        f"no quota: {text[:12]!r}": (v2("/job"), group(f"{V2}/job", cpu=text), None, None, None)
        for text in ("", "max", "max 100000", "100000", "100000 0", "-1 100000", "lots", f"{'9' * 30} 1")
    },
}  # fmt: skip


def asked(machine):
    questions = (
        host.cgroup_memory_limit,
        host.cgroup_memory_available,
        host.cgroup_cpu_quota,
    )
    return tuple(question(machine.path) for question in questions)


def build(machine, groups, files):
    if groups:
        machine.write("proc/self/cgroup", groups)
    for path, text in files.items():
        machine.write(path, f"{text}\n")


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_what_the_groups_allow(machine, tree):
    groups, files, *allowed = tree
    build(machine, groups, files)
    assert asked(machine) == tuple(allowed)


def test_other_platforms_have_no_control_groups(machine, monkeypatch):
    build(machine, v2("/job"), group(f"{V2}/job", GIB, cpu="100000 100000"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert asked(machine) == (None, None, None)


# ---------------------------------------------------------------------------- devices
# The PCI bus, device nodes and what both say of a backend, on trees built on disk.


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
