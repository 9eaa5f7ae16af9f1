"""The memory limit of the control group, on trees built on disk."""

from __future__ import annotations

import sys

import pytest

from accel_core.machine.hardware import cgroup_memory_available, cgroup_memory_limit, cgroup_memory_usage

GIB = 2**30
V2_MOUNT = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


def answers(machine):
    return tuple(
        ask(machine.path) for ask in (cgroup_memory_limit, cgroup_memory_usage, cgroup_memory_available)
    )


def v2(machine, path, top="/"):
    machine.write("proc/self/cgroup", f"0::{path}\n")
    machine.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + V2_MOUNT.format(top=top))


def v1(machine, path, top="/"):
    machine.write("proc/self/cgroup", f"9:name=systemd:/\n5:cpu:/\n4:memory:{path}\n")
    machine.write("proc/self/mountinfo", V1_MOUNTS.format(top=top))


def test_no_control_groups(machine):
    assert answers(machine) == (None, None, None)


def test_v2_without_a_limit(machine):
    v2(machine, "/user.slice/job")
    machine.group("sys/fs/cgroup/user.slice/job", memory_max="max", memory_current=GIB)
    assert answers(machine) == (None, None, None)


def test_v2_own_limit(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=8 * GIB, memory_current=3 * GIB)
    assert answers(machine) == (8 * GIB, 3 * GIB, 5 * GIB)


def test_v2_the_smallest_limit_up_the_tree(machine):
    v2(machine, "/slice/pod/container")
    machine.group("sys/fs/cgroup/slice", memory_max=16 * GIB, memory_current=9 * GIB)
    machine.group("sys/fs/cgroup/slice/pod", memory_max=4 * GIB, memory_current=2 * GIB)
    machine.group("sys/fs/cgroup/slice/pod/container", memory_max="max", memory_current=GIB)
    assert answers(machine) == (4 * GIB, 2 * GIB, 2 * GIB)


def test_v2_a_fuller_parent_leaves_less_than_the_smallest_limit(machine):
    v2(machine, "/slice/pod")
    machine.group("sys/fs/cgroup/slice", memory_max=16 * GIB, memory_current=15 * GIB)
    machine.group("sys/fs/cgroup/slice/pod", memory_max=8 * GIB, memory_current=2 * GIB)
    assert answers(machine) == (8 * GIB, 2 * GIB, GIB)


def test_v2_file_cache_is_not_in_use(machine):
    v2(machine, "/job")
    stat = f"anon {GIB}\nfile {5 * GIB}\ninactive_file {4 * GIB}\nactive_file {GIB}"
    machine.group("sys/fs/cgroup/job", memory_max=8 * GIB, memory_current=6 * GIB, memory_stat=stat)
    assert answers(machine) == (8 * GIB, 2 * GIB, 6 * GIB)


def test_v2_usage_is_never_negative(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB, memory_current=5, memory_stat="inactive_file 7")
    assert answers(machine) == (GIB, 0, GIB)


def test_v2_over_the_limit_leaves_nothing(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB, memory_current=2 * GIB)
    assert cgroup_memory_available(machine.path) == 0


def test_v2_usage_that_cannot_be_read_counts_as_none(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB)
    assert answers(machine) == (GIB, 0, GIB)


def test_v2_in_a_container_only_its_own_group_is_mounted(machine):
    v2(machine, "/docker/abc/inner", top="/docker/abc")
    machine.group("sys/fs/cgroup", memory_max=2 * GIB)
    machine.group("sys/fs/cgroup/inner", memory_max=3 * GIB)
    assert cgroup_memory_limit(machine.path) == 2 * GIB


@pytest.mark.parametrize("path", ["/../elsewhere", "/docker/abc/../..", "/docker/abcd"])
def test_v2_a_path_out_of_what_is_mounted(machine, path):
    v2(machine, path, top="/docker/abc" if path.startswith("/docker") else "/")
    machine.group("sys/fs/cgroup", memory_max=2 * GIB)
    machine.group("elsewhere", memory_max=1)
    machine.group("sys/elsewhere", memory_max=1)
    assert cgroup_memory_limit(machine.path) == 2 * GIB


def test_v2_a_mount_with_a_space_in_its_name(machine):
    machine.write("proc/self/cgroup", "0::/job\n")
    machine.write("proc/self/mountinfo", "30 23 0:26 / /my\\040groups rw - cgroup2 none rw\n")
    machine.group("my groups/job", memory_max=GIB)
    assert cgroup_memory_limit(machine.path) == GIB


def test_v2_without_mountinfo(machine):
    machine.write("proc/self/cgroup", "0::/job\n")
    machine.group("sys/fs/cgroup/job", memory_max=GIB)
    assert cgroup_memory_limit(machine.path) == GIB


def test_v1_limit_and_hierarchical_cache(machine):
    v1(machine, "/docker/abc")
    machine.group(
        "sys/fs/cgroup/memory/docker/abc",
        limit_v1=8 * GIB,
        usage_v1=6 * GIB,
        memory_stat=f"inactive_file 1\ntotal_inactive_file {GIB}",
    )
    machine.group("sys/fs/cgroup/memory", limit_v1=9223372036854771712, usage_v1=50 * GIB)
    assert answers(machine) == (8 * GIB, 5 * GIB, 3 * GIB)


def test_v1_no_limit_is_a_huge_number(machine):
    v1(machine, "/")
    machine.group("sys/fs/cgroup/memory", limit_v1=9223372036854771712)
    assert answers(machine) == (None, None, None)


def test_v1_without_the_memory_controller_mounted(machine):
    machine.write("proc/self/cgroup", "4:cpu,memory:/job\n")
    machine.write(
        "proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nbroken\n"
    )
    machine.group("sys/fs/cgroup/memory/job", limit_v1=GIB)
    assert cgroup_memory_limit(machine.path) == GIB


def test_hybrid_the_version_that_has_the_files_counts(machine):
    machine.write("proc/self/cgroup", "4:memory:/job\n0::/job\n")
    machine.write(
        "proc/self/mountinfo",
        V1_MOUNTS.format(top="/") + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    machine.group("sys/fs/cgroup/memory/job", limit_v1=GIB)
    (machine.root / "sys/fs/cgroup/unified/job").mkdir(parents=True)
    assert cgroup_memory_limit(machine.path) == GIB


@pytest.mark.parametrize("text", ["", "-1", "lots", "9" * 5000, "\N{SUPERSCRIPT TWO}"])
def test_a_limit_that_is_no_number_is_none(machine, text):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=text)
    assert cgroup_memory_limit(machine.path) is None


def test_a_group_without_any_memory_is_a_limit(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=0)
    assert cgroup_memory_limit(machine.path) == 0


def test_other_platforms_have_no_control_groups(machine, monkeypatch):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert answers(machine) == (None, None, None)


def test_this_machine_can_be_asked():
    for ask in (cgroup_memory_limit, cgroup_memory_usage, cgroup_memory_available):
        answer = ask()
        assert answer is None or (type(answer) is int and answer >= 0)
