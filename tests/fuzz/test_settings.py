"""Settings, command lines and files of the machine: whatever is in them is understood, or refused by name."""

import contextlib
import importlib
import io
import itertools
import json
import os
import shlex
import shutil

import click
import pytest
from accel_tests import variables
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core import Backend, hardware, settings, torch_import
from accel_core.backend import GRAMMARS
from accel_core.cli import accel, installed_commands
from accel_core.errors import AccelError, LaunchError, SettingError
from accel_core.hardware import bus
from accel_core.hardware.placement import placement
from accel_core.hardware.visible_devices import (
    format_visible_devices,
    parse_visible_devices,
)
from accel_tools.machine import driver_of, last_level_cache, processor_name
from accel_tools.setup.machines import Machine
from accel_tools.setup.planning import planned
from accel_train.launch import command_line, plan
from accel_train.launch.cores import (
    format_ranges,
    numa_node_of,
    parse_ranges,
    physical_cores,
)
from accel_train.launch.environment import as_deepspeed, as_shell
from accel_train.launch.formats import as_ray, as_slurm
from accel_train.launch.rendezvous import read_rank

# ---------------------------------------------------------------------------- settings
# Whatever stands in the environment: settings, or an error that names the variable.


#: Near what is written, and any text at all.
PART = st.sampled_from(
    [
        *(" ", "\n", "\0", "9" * 400),
        *words("\u0663 \u00b2 \ud800 \x1b[2J npu cuda cpu @ , npu@accel-npu 1 0 true"),
        *words("always isolated 10 2.5 -1 1e400 nan inf 1_0"),
    ]
)
VALUE = st.lists(PART, max_size=4).map("".join) | st.text(max_size=20)
VARIABLES = variables.variables()
NAMES = [variable.name for variable in VARIABLES]
NEARLY = st.sampled_from(
    ["ACCEL_STRIKT", "ACCEL_", "ACCEL_BLOK", "ACCEL_" + "X" * 1000, "accel_strict"]
)
ENVIRONMENT = st.dictionaries(st.sampled_from(NAMES) | NEARLY, VALUE, max_size=6)


@pytest.mark.parametrize("variable", VARIABLES, ids=NAMES)
@fuzzed(value=VALUE)
def test_a_variable_is_understood_or_an_error_names_it(variable, value):
    try:
        variable.read({variable.name: value})
    except SettingError as error:
        assert variable.name in str(error)


@fuzzed(environ=ENVIRONMENT)
def test_an_environment_is_settings_or_an_error(environ):
    try:
        found = settings.read(environ)
    except SettingError as error:
        assert any(name in str(error) for name in environ)
        return
    assert found.probe_timeout > 0
    assert isinstance(found.permits("npu", "accel-npu"), bool)
    assert {name for name, _ in found.misspelt} <= environ.keys() - set(NAMES)
    for pin in (*found.pins, *found.allow, *found.block):
        # What is shown can be written again.
        assert settings.parse_pin(str(pin), allow_distribution_only=True) == pin


@fuzzed(environ=ENVIRONMENT, rendezvous=st.booleans())
def test_a_rank_is_read_or_an_error_says_why_not(environ, rendezvous):
    try:
        place = read_rank(rendezvous=rendezvous, environ=environ)
    except (LaunchError, SettingError):
        return
    assert 0 <= place.rank < place.world_size


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z_]{1,8}", fullmatch=True),
        st.text(max_size=20).filter(lambda t: "\0" not in t),
    )
)
def test_variables_for_other_hosts_are_written_or_refused(given):
    # As `os.environ` holds it: bytes that are not UTF-8 are lone surrogates of one kind.
    held = {
        name: value.encode("utf-8", "surrogatepass") for name, value in given.items()
    }
    written = as_shell(
        {name: value.decode("utf-8", "surrogateescape") for name, value in held.items()}
    )
    assert written.count("export ") >= len(given)
    try:
        lines = as_deepspeed(given).split("\n")
    except LaunchError:
        return
    assert dict(line.split("=", 1) for line in lines if line) == given


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z]{1,4}", fullmatch=True),
        st.text("aZ09 $/{}:,'\"\\n#é", max_size=9),
    )
)
def test_what_ray_and_slurm_read_is_what_was_given(given):
    with contextlib.suppress(LaunchError):
        read = json.loads(as_ray(given))["env_vars"]
        assert {
            name: os.path.expandvars(value) for name, value in read.items()
        } == given
    with contextlib.suppress(LaunchError):
        comment, option = shlex.split(
            as_slurm(given)
        )  # as sbatch reads a line: with quotes
        whole, *pairs = option.removeprefix("--export=").split(",")
        assert (comment, whole) == ("#SBATCH", "ALL")
        assert dict(pair.split("=", 1) for pair in pairs) == given


# ---------------------------------------------------------------------------- command lines
# Whatever is typed behind `accel`: a call that can be made, or an error in words.


COMMANDS = {
    name: accel.get_command(click.Context(accel), name) for name in installed_commands()
}
PARSED = sorted(
    set(COMMANDS) - {"run", "deepspeed"}
)  # those two hand their arguments on
OPTIONS = sorted(
    {
        option
        for name in PARSED
        for parameter in COMMANDS[name].params
        for option in parameter.opts
    }
)
WORD = st.sampled_from(
    [
        "npu",
        "cpu@accel-core",
        "@",
        ",",
        "",
        "-",
        "--",
        "0",
        "-1",
        "1e9",
        "nan",
        "x.svg",
        "/",
        "a" * 5000,
    ]
) | st.text(max_size=8)


@pytest.mark.parametrize("name", PARSED)
@fuzzed(words=st.lists(st.sampled_from(OPTIONS) | WORD, max_size=5))
def test_arguments_are_understood_or_refused(name, words):
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(click.ClickException, click.exceptions.Exit),
    ):
        COMMANDS[name].make_context(name, list(words))


MACHINE = plan.Machine("cpu", "cpu", "", True, 1, "gloo", ["cpu"], [None], [], "", "")
KNOWN = (*command_line.OPTIONS, *command_line.FLAGS, *command_line.MOST_USED)
RUN = [*KNOWN, *words("-m --run-path --role -r -t")]
COUNT = st.sampled_from(
    ["", "9" * 5000, *words("1 2 0 -1 auto cpu gpu 1:2 2:1 : x 1e3 \u0663 1000000000")]
)


@pytest.fixture(scope="module")
def torchrun():
    """torchrun's parser: loaded before anything is measured."""
    pytest.importorskip("torch", reason="the options are torchrun's: needs torch")
    importlib.import_module("torch.distributed.run")


@pytest.mark.usefixtures("torchrun")
@fuzzed(
    words=st.lists(
        st.sampled_from(RUN)
        | COUNT
        | WORD
        | st.builds("{}={}".format, st.sampled_from(RUN), COUNT),
        max_size=5,
    )
)
@example(words=["--nproc-per-node", "1000000000"])
@example(words=["--nproc-per-node", "9" * 5000])
def test_a_run_is_planned_or_refused(words):
    with (
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            parsed = command_line.parse([*words, "train.py"])
        except (SystemExit, AccelError):
            return
    try:
        plans = plan.plan_ranks(parsed, MACHINE)
    except LaunchError as error:
        assert str(error)
        return
    assert plans
    assert plan.describe(MACHINE, parsed, plans).count("local rank") == len(plans)


# ---------------------------------------------------------------------------- visible devices
# Properties of every visible-devices grammar.


INDEX = st.integers(0, 10**9 - 1)
UUID = st.uuids().map(str)
UNIQUE = {
    "cuda": [
        st.lists(INDEX, unique=True),
        st.lists(UUID.map("GPU-{}".format), unique=True),
        st.lists(UUID.map(lambda u: f"GPU-{u[:8]}"), unique=True),
        st.lists(
            UUID.map("MIG-{}".format)
            | st.builds("MIG-GPU-{}/{}/{}".format, UUID, INDEX, INDEX),
            unique=True,
        ),
    ],
    "ascending": [st.lists(INDEX, unique=True).map(sorted)],
    "modules": [st.lists(st.integers(0, 7), unique=True, min_size=1)],
    "mlu": [st.lists(INDEX, unique=True), st.lists(UUID, unique=True)],
    "level-zero": [
        st.lists(st.integers(0, 127), unique=True, min_size=1).map(sorted),
        st.lists(st.integers(0, 9).map("0.{}".format), unique=True, min_size=1).map(
            sorted
        ),
    ],
    "indices": [st.lists(INDEX, unique=True)],
}
#: Text near what people write, and any text at all.
ALMOST = st.lists(
    st.sampled_from(
        [
            "0",
            "1",
            "-1",
            "+2",
            "GPU-",
            "GPU-12ab",
            "MIG-GPU-1/0/0",
            "0.1",
            " ",
            "x",
            "٣",
            "99999999999",
        ]
    ),
    max_size=6,
).map(",".join)
VALUES = st.text() | ALMOST | st.text("0123456789,-. GPUMIabc/")
ITEMS = st.lists(
    st.integers()
    | st.text()
    | st.sampled_from(["0", "GPU-1", "MIG-2", "0.1"])
    | st.booleans()
)


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(data=st.data())
def test_what_is_written_is_read_back(grammar, data):
    ids = data.draw(st.one_of(UNIQUE[grammar]))
    assert parse_visible_devices(
        grammar, format_visible_devices(grammar, ids)
    ).ids == tuple(ids)


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(value=VALUES)
@example(value="\x1d33")  # a blank to str.strip(), and none to int()
def test_any_text_is_read_or_refused(grammar, value):
    try:
        visible = parse_visible_devices(grammar, value)
    except SettingError:
        return
    assert visible.ids is None or len(set(visible.ids)) == len(visible.ids)
    assert all(type(item) in (int, str) for item in visible.ids or ())


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(ids=ITEMS)
def test_any_ids_are_written_exactly_or_refused(grammar, ids):
    try:
        value = format_visible_devices(grammar, ids)
    except SettingError:
        return
    visible = parse_visible_devices(grammar, value)
    assert sorted(map(str, visible.ids or ())) == sorted(
        str(parse_number(item)) for item in ids
    )


def parse_number(item):
    return (
        int(item)
        if isinstance(item, str) and item.isascii() and item.isdigit()
        else item
    )


# ---------------------------------------------------------------------------- machine files
# Whatever is in the files that `accel setup` reads: a plan, or why there is none.


_runs = itertools.count()

FILES = {
    "sys/bus/pci/devices/0000:17:00.0/modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
    "sys/module/nvidia/version": "550.54.15",
    "proc/version": "Linux version 6.8.0 aarch64",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402",
    "usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info": "version=8.5.0",
    "etc/alpine-release": "3.22.1",
}
STRANGE = [
    "9" * 5000,
    "9" * 300 + ".1",
    "1.2.3.RC1",
    "\0",
    "\ud800",
    "\x1b]0;x\x07",
    "12.8",
    "a" * 300,
]
TEXT = st.text(max_size=12) | st.sampled_from([*STRANGE, *FILES.values()])
TREES = st.fixed_dictionaries(
    {}, optional={path: st.just(text) | TEXT for path, text in FILES.items()}
)


@fuzzed(files=TREES)
def test_any_files_of_a_machine_give_a_plan_or_a_reason(tmp_path, files):
    bus.pci_devices.cache_clear()
    root = tmp_path / str(next(_runs))
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("utf-8", "surrogatepass"))
    plan = planned(Machine(str(root), "linux", "x86_64", "3.12"))
    assert bool(plan.torch) is not bool(plan.unknown)


# ---------------------------------------------------------------------------- host files
# Whatever a machine's files hold, `/proc`, `/sys`, `/etc` and `/run`: an answer of the right kind.


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


@fuzzed(files=st.fixed_dictionaries({}, optional=HOST))
def test_any_files_are_a_machine(base, files):
    folder = base / str(next(_runs))
    for name, data in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    root = str(folder)
    for found in (
        hardware.cgroup_memory_limit(root),
        hardware.cgroup_memory_available(root),
    ):
        assert found is None or (type(found) is int and found >= 0)
    quota = hardware.cgroup_cpu_quota(root)
    assert quota is None or quota >= 0
    assert hardware.numa_node_count(root) >= 1
    assert sum(map(len, physical_cores({0, 1}, root))) == 2
    assert isinstance(processor_name(root), str)
    assert (last_level_cache(root) or 0) >= 0
    placed = placement(root, {})
    assert placed.name
    assert placed.scheduler_step(_BACKEND) is not None
    for device in bus.pci_devices(root):
        assert bus.matches_pci(device, [device.vendor])
        assert (numa_node_of(device.address, root) or 0) >= 0
        assert isinstance(driver_of(device.address, root), str)
    shutil.rmtree(folder, ignore_errors=True)


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
    for name, value in torch_import._version_file([str(tmp_path)]).items():
        assert isinstance(name, str)
        assert value is None or isinstance(value, str)
