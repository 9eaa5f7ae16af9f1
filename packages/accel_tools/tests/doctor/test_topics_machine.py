"""The doctor's topic on the machine, on simulated file systems."""

import os
import subprocess
import sys

import pytest
from accel_tests import layouts

from accel_core import TorchBuild, __version__
from accel_core.hardware import bus, vendors
from accel_core.settings import read
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics import machine as topic

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /sys and /proc"
)

#: The real one, which the fixture `world` replaces.
KNOWN_HARDWARE = vendors.known_hardware
GPU, C500 = (
    ("0000:17:00.0", "10de", "2335", "030200"),
    ("0000:17:00.0", "9999", "4001", "038000"),
)


@pytest.fixture
def said(computer, world, monkeypatch):
    """`said(build, **variables)`: the findings by code, with a torch of that build and nothing installed."""
    monkeypatch.setattr(vendors, "known_hardware", KNOWN_HARDWARE)

    def examined(build, **variables):
        monkeypatch.setattr(topic, "torch_build", lambda: build)
        found = list(
            topic.findings(DiagnosticContext(read(variables), variables), computer.path)
        )
        assert len({f.code for f in found}) == len(found)
        return {f.code: f for f in found}

    return examined


@pytest.fixture
def lock(tmp_path):
    """A lock of torch's own builds."""
    file = tmp_path / "torch_extensions" / "py_cpu" / "odd_op" / "lock"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_without_a_build_there_is_no_stale_lock(said, tmp_path):
    assert "machine.stale-lock" not in said(CPU_BUILD, XDG_CACHE_HOME=str(tmp_path))


def test_the_lock_of_a_build_that_is_under_way_is_not_stale(said, tmp_path, lock):
    assert "machine.stale-lock" not in said(CPU_BUILD, XDG_CACHE_HOME=str(tmp_path))


def test_a_lock_that_a_killed_build_left_is_named(said, tmp_path, lock):
    os.utime(lock, (1, 1))
    finding = said(CPU_BUILD, XDG_CACHE_HOME=str(tmp_path))["machine.stale-lock"]
    assert finding.step == f"if no build is running in this folder: rm {lock}"


CPU_BUILD = TorchBuild("2.13.0+cpu")
CUDA_12, CUDA_13 = TorchBuild("2.13.0", cuda="12.6"), TorchBuild("2.13.0", cuda="13.0")
ROCM = TorchBuild("2.13.0", hip="6.4")
NVRM = "/proc/driver/nvidia/version"


def test_a_machine_without_an_accelerator_is_well(said):
    found = said(CPU_BUILD)
    assert {f.level for f in found.values()} == {Level.OK}
    assert found["machine.seen"].what == "No accelerator on this machine"
    assert (
        found["machine.torch"].what == "torch 2.13.0+cpu (CPU build) fits the hardware"
    )


MACA = TorchBuild("2.8.0+metax3.5.3.9", cuda="11.6")
FROM_METAX = "install torch from MetaX: https://developer.metax-tech.com/softnova"
UNFIT = [
    (
        GPU,
        CPU_BUILD,
        "cpu",
        "is a CPU build, but this machine has an NVIDIA GPU (PCI 10de:2335",
        CUDA_12,
    ),
    (
        GPU,
        ROCM,
        "other",
        "is a ROCm build, but this machine has an NVIDIA GPU (PCI 10de:2335",
        CUDA_12,
    ),
    (
        C500,
        CUDA_12,
        "other",
        "is not MetaX's build, but this machine has a MetaX GPU (PCI 9999:4001",
        MACA,
    ),
]


@pytest.mark.parametrize(("card", "build", "kind", "words", "fitting"), UNFIT)
def test_a_build_that_cannot_drive_what_is_on_the_bus(
    said, computer, card, build, kind, words, fitting
):
    computer.pci(*card)
    finding = said(build)[code := f"machine.{kind}-build"]
    assert finding.level == Level.ERROR
    assert finding.about == "cuda"
    assert finding.what == f"torch {build.version} {words} at 0000:17:00.0)"
    assert finding.step == ("accel setup cuda" if card is GPU else FROM_METAX)
    assert (
        said(build, DS_ACCELERATOR="cpu")[code].level is Level.WARNING
    )  # it was left aside on purpose
    assert "machine.torch" not in said(build)
    assert "machine.torch" in said(fitting)


DRIVER_FILES = [
    ("/sys/module/nvidia/version", "535.183.01"),
    (
        NVRM,
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
    ),
    (
        NVRM,
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.183.01  Release Build",
    ),
]


@pytest.mark.parametrize(("path", "text"), DRIVER_FILES)
def test_a_driver_that_is_too_old_for_torchs_cuda(said, computer, path, text):
    computer.pci(*GPU)
    computer.write(path, text)
    finding = said(CUDA_13)["machine.driver-too-old"]
    assert finding.level is Level.ERROR
    assert (
        "535.183.01 is too old for torch's CUDA 13.0, which needs driver 580 or newer"
        in finding.what
    )
    assert finding.step == "accel setup cuda"
    assert said(CUDA_12)["machine.driver"].level is Level.OK
    computer.write(
        "/usr/local/cuda/compat/libcuda.so.1"
    )  # NVIDIA's package for older drivers
    assert said(CUDA_13)["machine.driver-too-old"].level is Level.WARNING


def test_the_driver_of_what_is_not_there_is_nobodys_concern(said, computer):
    computer.write("/sys/module/nvidia/version", "535.183.01")
    assert "machine.driver-too-old" not in said(CUDA_13)


CODE = [
    ((9, 0), ["sm_80", "sm_90"], False),
    ((8, 9), ["sm_80", "sm_90"], False),  # code for 8.0 runs on 8.9
    ((8, 0), ["sm_86", "sm_90"], True),
    ((6, 1), ["sm_75", "sm_80", "compute_90"], True),
    ((12, 0), ["sm_75", "sm_90", "compute_90"], False),  # compiled by the driver
    ((12, 0), ["sm_75", "sm_90"], True),
    ((12, 0), ["sm_90", "sm_120"], False),
    ((10, 3), ["sm_90a", "sm_100a"], True),
    ((10, 3), ["sm_100f"], False),
    ((10, 3), [], False),  # not known
    ((10, 3), ["gfx942"], False),
]


@pytest.mark.parametrize(("capability", "has", "missing"), CODE)
def test_code_for_a_gpu(capability, has, missing):
    assert topic.has_no_code(capability, has) is missing


def test_a_device_without_its_plugin(said, world, monkeypatch):
    """As the choice says it, from metadata alone."""
    evidence = bus.Evidence(("/dev/davinci0",))
    known = vendors.Vendor("Ascend NPU", "npu", evidence=evidence)
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (known,))
    finding = said(CPU_BUILD)["machine.no-plugin"]
    step = vendors.install_command("accel-npu")
    assert finding.level == Level.WARNING
    assert finding.about == "npu"
    assert finding.step == step
    assert (
        finding.what
        == "Ascend NPU is present (/dev/davinci0), but its plugin is not installed"
    )
    entry_point = {layouts.GROUP: {"npu": "accel_npu_that_is_not_there"}}
    layouts.dist_info(world.site, "accel-npu", "1.0", entry_point)
    world.set_path([world.site])
    assert "machine.no-plugin" not in said(CPU_BUILD)


def test_a_container_without_the_hosts_devices(said, computer):
    computer.pci(*GPU)
    assert "machine.no-nodes" not in said(
        CUDA_12
    )  # some drivers make their nodes at the first use
    computer.write("/.dockerenv")
    finding = said(CUDA_12)["machine.no-nodes"]
    assert finding.level is Level.ERROR
    assert "but this container lacks its device node" in finding.what
    assert "accel why cuda" in finding.step


def test_what_the_control_group_leaves(said, computer):
    computer.write("/proc/self/cgroup", "0::/job\n")
    computer.group(
        "/sys/fs/cgroup/job",
        memory_max=1 << 30,
        memory_current=1 << 28,
        cpu_max="150000 100000",
    )
    found = said(CPU_BUILD)
    assert "machine.little-memory" not in found
    facts = found["machine.seen"].facts
    assert facts["memory of the control group"] == "1.0 GiB, of which 768 MiB are free"
    assert facts["CPU quota of the control group"] == "1.5"
    computer.group("/sys/fs/cgroup/job", memory_current=(1 << 30) - (1 << 20))
    finding = said(CPU_BUILD)["machine.little-memory"]
    assert finding.level is Level.WARNING
    assert "only 1 MiB of the control group's 1.0 GiB" in finding.what


def test_findings_on_backends_that_were_not_asked_for_are_left_out(
    computer, monkeypatch
):
    evidence = bus.Evidence((), ("10de:2335 at 0000:17:00.0",))
    known = vendors.Vendor("NVIDIA GPU", "cuda", evidence=evidence)
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (known,))
    monkeypatch.setattr(topic, "torch_build", lambda: CPU_BUILD)

    def codes(name):
        pins = read({"DS_ACCELERATOR": name}).pins
        return {
            f.code for f in topic.TOPIC.examine(DiagnosticContext(read({}), {}, pins))
        }

    assert "machine.cpu-build" in codes("cuda")
    assert "machine.cpu-build" not in codes("npu")
    assert "machine.seen" in codes("npu")


def test_a_distribution_of_another_release_is_told_with_the_command_that_joins_them(
    monkeypatch,
):
    versions = {"accel-train": "0.0.9", "accel-core": __version__}
    monkeypatch.setattr(topic.packages, "version", versions.get)
    (found,) = topic._version_mismatch_findings()
    assert found.code == "machine.other-release"
    assert found.level == Level.WARNING
    assert found.what.startswith(
        f"accel-train 0.0.9 is installed with accel-core {__version__}, but"
    )
    assert "--upgrade" in found.step


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize(
    ("hard", "step"),
    [
        (-1, "ulimit -S -t unlimited"),
        (60, "train where CPU time is not limited, such as in a job of the scheduler"),
    ],
    ids=["soft", "hard"],
)
def test_a_limit_on_cpu_time_is_told_before_a_training_reaches_it(
    said, monkeypatch, hard, step
):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (60, hard))
    finding = said(CPU_BUILD)["machine.cpu-time"]
    what = "the system ends a process after 60 s of CPU time (ulimit -t)"
    assert finding.what == what
    assert finding.step == step


@pytest.mark.parametrize(
    ("umask", "codes"), [("0777", ["machine.umask"]), ("0022", [])]
)
def test_a_umask_that_denies_the_owner_is_named(tmp_path, umask, codes):
    status = tmp_path / "proc" / "self" / "status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Name:\tpython\nUmask:\t{umask}\n")
    found = [finding.code for finding in topic._umask_findings(str(tmp_path))]
    assert found == codes


def test_a_closed_standard_input_is_named(said, monkeypatch):
    assert "machine.closed-input" not in said(CPU_BUILD)
    monkeypatch.setattr(sys, "stdin", None)
    assert said(CPU_BUILD)["machine.closed-input"].step.endswith("< /dev/null")


def test_a_loopback_interface_that_is_down_is_named():
    """In a new network namespace, which has one that is down."""
    program = (
        "from accel_tools.doctor.topics import machine\n"
        "print([finding.code for finding in machine._loopback_findings()])"
    )
    command = [sys.executable, "-c", program]
    here = subprocess.run(command, capture_output=True, text=True, check=True)
    assert here.stdout == "[]\n"
    if subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        pytest.skip("no permission to create a network namespace")
    there = subprocess.run(
        ["unshare", "--net", *command], capture_output=True, text=True, check=True
    )
    assert there.stdout == "['machine.loopback']\n"


def test_another_python_before_that_of_the_activated_environment_is_named(
    said, tmp_path
):
    """After `module load python`, for example."""
    own = f"{sys.prefix}/bin"
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    other_first = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{tmp_path}:{own}"}
    found = said(CPU_BUILD, **other_first)["machine.other-python"]
    assert f"`python` is {other}" in found.what
    assert found.step == f"export PATH={own}:$PATH"
    own_first = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{own}:{tmp_path}"}
    assert "machine.other-python" not in said(CPU_BUILD, **own_first)
    not_activated = {"PATH": str(tmp_path)}
    assert "machine.other-python" not in said(CPU_BUILD, **not_activated)
