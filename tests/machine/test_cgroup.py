"""What control groups allow of memory and of the CPU, on trees built on disk."""

import sys

import pytest

from accel_core import hardware as host

GIB = 2**30
NO_LIMIT_V1 = 9223372036854771712
V2, V1, CPU_V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"


def v2(path):
    """The line of /proc/self/cgroup in version 2."""
    return f"0::{path}\n"


def v1(path, controller="memory"):
    return f"9:name=systemd:/\n4:{controller}:{path}\n3:cpuset:/\n"


def group(folder, limit=None, used=None, **files):
    """Files of a group in version 2: memory's and, in `cpu`, the CPU's."""
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
def test_the_least_that_any_group_above_allows_counts(machine, tree):
    groups, files, *allowed = tree
    build(machine, groups, files)
    assert asked(machine) == tuple(allowed)


def test_other_platforms_have_no_control_groups(machine, monkeypatch):
    build(machine, v2("/job"), group(f"{V2}/job", GIB, cpu="100000 100000"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert asked(machine) == (None, None, None)


def test_the_kills_of_all_groups_above_count(machine):
    files = {f"{V2}/pod/memory.events": "low 0\noom 5\noom_kill 3"}
    files[f"{V2}/pod/job/memory.events"] = "low 0\noom 1\noom_kill 1"
    build(machine, v2("/pod/job"), files)
    assert host.cgroup_memory_kills(machine.path) == 4


def test_the_kills_of_version_1_count(machine):
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2"
    build(machine, v1("/job"), {f"{V1}/job/memory.oom_control": text})
    assert host.cgroup_memory_kills(machine.path) == 2


@pytest.mark.parametrize(("needed", "limit"), [(5, None), (6, 16)])
def test_a_limit_of_processes_counts_where_too_few_are_left(machine, needed, limit):
    files = {
        f"{V2}/pod/pids.max": "16",
        f"{V2}/pod/pids.current": "11",
        f"{V2}/pod/job/pids.max": "max",
        f"{V2}/pod/job/pids.current": "4",
    }
    build(machine, v2("/pod/job"), files)
    assert host.cgroup_process_limit(needed, machine.path) == limit
