"""Whatever a machine's files hold, `/proc`, `/sys`, `/etc` and `/run`: an answer of the right kind."""

import contextlib
import itertools
import shutil

import pytest
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core import Backend, hardware, torch_import
from accel_core.explain.device_access import container_name, scheduler_step
from accel_core.hardware import bus
from accel_core.hardware.placement import detect_placement
from accel_tools.machine import cpu_name, driver_of, last_level_cache
from accel_train.launch.cores import (
    format_ranges,
    numa_node_of,
    parse_ranges,
    physical_cores,
)

_runs = itertools.count()


NUMBER = st.sampled_from(
    [
        "",
        " ",
        "9" * 30,
        *words("0 1 -1 max 65535 65536 9223372036854771712 \u0663 \u00b2 0x1"),
    ]
)


def lines(*known, other=20):
    """Text of some of these lines, and of others."""
    return st.lists(st.sampled_from(known) | st.text(max_size=other), max_size=4).map(
        "\n".join
    )


RANGES = st.lists(
    st.sampled_from(words("0-3 8 3-0 0-65535 0-99999999999 - x")), max_size=4
).map(",".join)
GROUP = lines(
    *words(
        "0::/ 0::/a/b 0::/../.. 4:memory:/docker/x 2:cpu,cpuacct:/ :: x 0::/kubepods/pod1"
    ),
    "1:name=systemd:/a\\040b",
    "0::" + "/a" * 200,
)
MOUNTS = lines(
    "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "31 23 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "1 2 3 /var/lib/docker/containers/x/hosts /etc/hosts rw - ext4 a b",
    *(
        "1 2 3 4 / - cgroup2",
        "- cgroup2",
        "",
        " - ",
        "1 2 3 /.. /x\\134 - cgroup x cpu",
    ),
    other=30,
)
LINE = NUMBER | RANGES | GROUP | MOUNTS | st.text(max_size=30)
DATA = LINE.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(
    max_size=60
)
SIZES = (
    st.sampled_from([b"32768K", b"1M", b"K", b"99999999999999999999G", b"\xff", b""])
    | DATA
)
CPU, PCI = "sys/devices/system/cpu/cpu0/", "sys/bus/pci/devices/0000:00:04.0/"
HOST = {
    **dict.fromkeys(
        words(
            "proc/self/cgroup proc/self/mountinfo proc/cpuinfo etc/hosts run/systemd/container"
        ),
        DATA,
    ),
    **{
        f"sys/fs/cgroup/{name}": DATA
        for name in words("memory.max memory.current memory.stat cpu.max")
    },
    **{f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us": DATA for name in ("quota", "period")},
    "sys/fs/cgroup/memory/memory.limit_in_bytes": DATA,
    **{f"sys/devices/system/node/node{name}/cpulist": DATA for name in "0X"},
    f"{CPU}topology/thread_siblings_list": DATA,
    **{f"{CPU}cache/index0/{name}": DATA for name in ("level", "shared_cpu_list")},
    f"{CPU}cache/index0/size": SIZES,
    **{
        PCI + name: DATA
        for name in words("vendor device class numa_node uevent driver/module/version")
    },
}
_BACKEND = Backend(name="x", priority=1, device_type="x")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("machines")


@contextlib.contextmanager
def machine_of(folder, files):
    """A machine of these files; its root."""
    root = folder / str(next(_runs))
    for name, data in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    yield str(root)
    shutil.rmtree(root, ignore_errors=True)


@fuzzed(files=st.fixed_dictionaries({}, optional=HOST))
def test_any_files_give_a_control_groups_limits_or_none(base, files):
    with machine_of(base, files) as root:
        for found in (
            hardware.cgroup_memory_limit(root),
            hardware.cgroup_memory_available(root),
        ):
            assert found is None or (type(found) is int and found >= 0)
        quota = hardware.cgroup_cpu_quota(root)
        assert quota is None or quota >= 0


@fuzzed(files=st.fixed_dictionaries({}, optional=HOST))
def test_any_files_give_a_processor(base, files):
    with machine_of(base, files) as root:
        assert hardware.numa_node_count(root) >= 1
        assert sum(map(len, physical_cores({0, 1}, root))) == 2
        assert isinstance(cpu_name(root), str)
        assert (last_level_cache(root) or 0) >= 0


@fuzzed(files=st.fixed_dictionaries({}, optional=HOST))
def test_any_files_give_a_place_where_the_process_runs(base, files):
    with machine_of(base, files) as root:
        place = detect_placement(root, {})
        assert container_name(place)
        assert scheduler_step(place, _BACKEND) is not None


@fuzzed(files=st.fixed_dictionaries({}, optional=HOST))
def test_any_files_give_pci_devices(base, files):
    with machine_of(base, files) as root:
        for device in bus.pci_devices(root):
            assert bus.matches_pci(device, [device.vendor])
            assert (numa_node_of(device.address, root) or 0) >= 0
            assert isinstance(driver_of(device.address, root), str)


@fuzzed(text=RANGES | st.text("0123456789,- \n", max_size=30) | st.text(max_size=20))
def test_ranges_of_cores_are_numbers_or_nothing(text):
    cores = parse_ranges(text)
    assert cores is None or parse_ranges(format_ranges(cores)) == cores


#: What torch's version file is read for, and what else may stand there.
LINES = r"""__version__ = '2.13.0'
cuda: Optional[str] = None
hip = '6'
xpu = 1
cuda = '12' + ''
import os
x = (
# coding: nonsense
a.b = c[0] = '1'
__version__ = b'2'""".splitlines()
RELEASE = st.lists(
    st.sampled_from([*LINES, "\ufeff"]) | st.text(max_size=20), max_size=6
).map("\n".join)
VERSION = RELEASE.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(
    max_size=60
)


@fuzzed(written=VERSION)
@example(written=b"x = " + b"(" * 50_000 + b")" * 50_000)
@example(written=b"x = " + b"-" * 200_000 + b"1")
@example(written=b"x = 1" + b"+1" * 50_000)
def test_any_version_file_of_torch_is_read_or_passed_over(tmp_path, written):
    (tmp_path / "version.py").write_bytes(written)
    for name, value in torch_import._variables_in_version_file([str(tmp_path)]).items():
        assert isinstance(name, str)
        assert value is None or isinstance(value, str)
