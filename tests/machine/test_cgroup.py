"""What control groups allow of memory and of the processor, on trees built on disk."""

from __future__ import annotations

import sys

import pytest

from accel_core.machine import cgroup_cpu_quota, cgroup_memory_available, cgroup_memory_limit

GIB = 2**30
V2_MOUNT = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


def answers(machine):
    return cgroup_memory_limit(machine.path), cgroup_memory_available(machine.path)


def v2(machine, path, top="/"):
    machine.write("proc/self/cgroup", f"0::{path}\n")
    machine.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + V2_MOUNT.format(top=top))


def v1(machine, path, top="/"):
    machine.write("proc/self/cgroup", f"9:name=systemd:/\n5:cpu:/\n4:memory:{path}\n")
    machine.write("proc/self/mountinfo", V1_MOUNTS.format(top=top))


def test_no_control_groups(machine):
    assert answers(machine) == (None, None)


def test_v2_without_a_limit(machine):
    v2(machine, "/user.slice/job")
    machine.group("sys/fs/cgroup/user.slice/job", memory_max="max", memory_current=GIB)
    assert answers(machine) == (None, None)


def test_v2_own_limit(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=8 * GIB, memory_current=3 * GIB)
    assert answers(machine) == (8 * GIB, 5 * GIB)


def test_v2_the_smallest_limit_up_the_tree(machine):
    v2(machine, "/slice/pod/container")
    machine.group("sys/fs/cgroup/slice", memory_max=16 * GIB, memory_current=9 * GIB)
    machine.group("sys/fs/cgroup/slice/pod", memory_max=4 * GIB, memory_current=2 * GIB)
    machine.group("sys/fs/cgroup/slice/pod/container", memory_max="max", memory_current=GIB)
    assert answers(machine) == (4 * GIB, 2 * GIB)


def test_v2_a_fuller_parent_leaves_less_than_the_smallest_limit(machine):
    v2(machine, "/slice/pod")
    machine.group("sys/fs/cgroup/slice", memory_max=16 * GIB, memory_current=15 * GIB)
    machine.group("sys/fs/cgroup/slice/pod", memory_max=8 * GIB, memory_current=2 * GIB)
    assert answers(machine) == (8 * GIB, GIB)


def test_v2_file_cache_is_not_in_use(machine):
    v2(machine, "/job")
    stat = f"anon {GIB}\nfile {5 * GIB}\ninactive_file {4 * GIB}\nactive_file {GIB}"
    machine.group("sys/fs/cgroup/job", memory_max=8 * GIB, memory_current=6 * GIB, memory_stat=stat)
    assert answers(machine) == (8 * GIB, 6 * GIB)


def test_v2_usage_is_never_negative(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB, memory_current=5, memory_stat="inactive_file 7")
    assert answers(machine) == (GIB, GIB)


def test_v2_over_the_limit_leaves_nothing(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB, memory_current=2 * GIB)
    assert cgroup_memory_available(machine.path) == 0


def test_v2_usage_that_cannot_be_read_counts_as_none(machine):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", memory_max=GIB)
    assert answers(machine) == (GIB, GIB)


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
    assert answers(machine) == (8 * GIB, 3 * GIB)


def test_v1_no_limit_is_a_huge_number(machine):
    v1(machine, "/")
    machine.group("sys/fs/cgroup/memory", limit_v1=9223372036854771712)
    assert answers(machine) == (None, None)


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
    assert answers(machine) == (None, None)


def test_this_machine_can_be_asked():
    for ask in (cgroup_memory_limit, cgroup_memory_available):
        answer = ask()
        assert answer is None or (type(answer) is int and answer >= 0)
    quota = cgroup_cpu_quota()
    assert quota is None or quota > 0


# --- The processor -------------------------------------------------------------------------------------

CPU_V1_MOUNTS = (
    "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)
CPU_V1 = "sys/fs/cgroup/cpu,cpuacct"


def cpu_v1(machine, path, top="/"):
    machine.write("proc/self/cgroup", f"9:name=systemd:/\n5:cpu,cpuacct:{path}\n4:memory:/\n3:cpuset:/\n")
    machine.write("proc/self/mountinfo", CPU_V1_MOUNTS.format(top=top))


def quota_v1(machine, folder, quota, period=100000):
    machine.write(f"{CPU_V1}{folder}/cpu.cfs_quota_us", f"{quota}\n")
    machine.write(f"{CPU_V1}{folder}/cpu.cfs_period_us", f"{period}\n")


def test_v2_the_quota_is_the_least_of_all_groups_above(machine):
    v2(machine, "/a/b")
    machine.group("sys/fs/cgroup", cpu_max="max 100000")
    machine.group("sys/fs/cgroup/a", cpu_max="400000 100000")
    machine.group("sys/fs/cgroup/a/b", cpu_max="250000 100000")
    assert cgroup_cpu_quota(machine.path) == 2.5
    machine.group("sys/fs/cgroup/a", cpu_max="50000 100000")
    assert cgroup_cpu_quota(machine.path) == 0.5
    machine.write("proc/self/cgroup", "nonsense\n")
    assert cgroup_cpu_quota(machine.path) is None


def test_v2_in_a_container_the_quota_of_the_group_that_is_mounted(machine):
    """Docker without a cgroup namespace: the path is the host's, and its last part is what is mounted."""
    v2(machine, "/docker/abc/inner", top="/docker/abc")
    machine.group("sys/fs/cgroup", cpu_max="300000 100000")
    machine.group("sys/fs/cgroup/inner", cpu_max="max 100000")
    assert cgroup_cpu_quota(machine.path) == 3.0


def test_v1_the_quota_of_its_own_hierarchy(machine):
    cpu_v1(machine, "/slurm/job")
    quota_v1(machine, "", -1)
    quota_v1(machine, "/slurm", 800000)
    quota_v1(machine, "/slurm/job", 100000, 50000)
    assert cgroup_cpu_quota(machine.path) == 2.0
    quota_v1(machine, "/slurm/job", -1)
    assert cgroup_cpu_quota(machine.path) == 8.0


def test_v1_in_a_container_the_quota_of_the_group_that_is_mounted(machine):
    cpu_v1(machine, "/docker/abc", top="/docker/abc")
    quota_v1(machine, "", 150000)
    assert cgroup_cpu_quota(machine.path) == 1.5


def test_v1_where_no_mount_is_listed(machine):
    machine.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n")
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n")
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    assert cgroup_cpu_quota(machine.path) == 2.0


def test_hybrid_the_processor_in_one_version_and_memory_in_the_other(machine):
    """systemd's hybrid layout may have any controller in either."""
    machine.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n0::/job\n")
    machine.write(
        "proc/self/mountinfo",
        CPU_V1_MOUNTS.format(top="/") + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    quota_v1(machine, "/job", 400000)
    machine.group("sys/fs/cgroup/unified/job", memory_max=GIB)
    assert cgroup_cpu_quota(machine.path) == 4.0
    assert cgroup_memory_limit(machine.path) == GIB


@pytest.mark.parametrize(
    "text", ["", "max", "max 100000", "100000", "100000 0", "-1 100000", "lots of it", "9" * 30 + " 1"]
)
def test_a_quota_that_is_no_number_is_none(machine, text):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", cpu_max=text)
    assert cgroup_cpu_quota(machine.path) is None


def test_no_quota_outside_linux(machine, monkeypatch):
    v2(machine, "/job")
    machine.group("sys/fs/cgroup/job", cpu_max="100000 100000")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cgroup_cpu_quota(machine.path) is None


def test_of_several_mounts_the_one_that_shows_the_groups_above_counts(machine):
    """A container that was given the host's groups besides its own."""
    machine.write("proc/self/cgroup", "0::/docker/abc\n")
    machine.write(
        "proc/self/mountinfo",
        V2_MOUNT.format(top="/docker/abc") + "31 23 0:26 / /host/cgroup ro - cgroup2 cgroup2 rw\n",
    )
    machine.group("sys/fs/cgroup", memory_max=8 * GIB, cpu_max="800000 100000")
    machine.group("host/cgroup/docker/abc", memory_max=8 * GIB, cpu_max="800000 100000")
    machine.group("host/cgroup/docker", memory_max=4 * GIB, cpu_max="400000 100000")
    assert (cgroup_memory_limit(machine.path), cgroup_cpu_quota(machine.path)) == (4 * GIB, 4.0)


def test_a_mount_of_another_group_does_not_hide_the_own_one(machine):
    machine.write("proc/self/cgroup", "0::/job\n")
    machine.write(
        "proc/self/mountinfo",
        "29 23 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n" + V2_MOUNT.format(top="/"),
    )
    machine.group("mnt/other", memory_max=1, cpu_max="1000 100000")
    machine.group("sys/fs/cgroup/job", memory_max=GIB, cpu_max="200000 100000")
    assert (cgroup_memory_limit(machine.path), cgroup_cpu_quota(machine.path)) == (GIB, 2.0)
