"""Saved machines: every kind of file gives the same machine, and what is none is refused by name."""

import gzip
import json
import os
import sys
import tarfile

import pytest
from accel_tests.archives import of_tar, of_zip
from accel_tests.children import executable, run_python
from accel_tests.computers import Computer
from accel_tests.fuzzing import bounded

from accel_core.hardware import bus, vendors
from accel_tools.setup import archives, machines
from accel_tools.setup.hardware import VOLTA, seen
from accel_tools.setup.planning import planned
from accel_tools.setup.recipes import known_files

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /sys and /dev"
)


@pytest.fixture
def computer(computer):
    """One H100 with its driver, and CANN."""
    computer.pci("0000:17:00.0", "10de", "2330", "030200")
    computer.pci("0000:18:00.0", "8086", "1533", "020000")  # a network card
    computer.pci(
        "0000:19:00.0", "ac3e", "0323", "030200"
    )  # an accelerator that nobody knows
    computer.write("/dev/nvidia0")
    computer.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue",
    )
    computer.write(
        "/proc/version",
        "Linux version 6.8-microsoft-WSL2 (somebody@host.internal) #1 SMP",
    )
    computer.write(
        "/usr/local/Ascend/cann-9.1.0/x86_64-linux/ascend_toolkit_install.info",
        "path=/home/somebody\nversion=9.1.0\n",
    )
    return computer


def packed(computer, tmp_path, kind):
    """The computer as that kind of file."""
    document = machines.recorded(machines.here("3.12", computer.path), known_files())
    if kind == "tree":
        return computer.root
    files = {
        name.lstrip("/"): text.encode() for name, text in document["files"].items()
    }
    saved = json.dumps(document).encode()
    target = tmp_path / f"machine.{kind}"
    target.write_bytes(
        {
            "json": saved,
            "bundle": of_zip({"report.json": b"{}", machines.FILE: saved}),
            "zip": of_zip(files),
            "tar.gz": gzip.compress(of_tar(files)),
        }[kind]
    )
    return target


@pytest.mark.parametrize("kind", ["tree", "json", "bundle", "zip", "tar.gz"])
def test_every_kind_of_file_gives_the_machine(computer, tmp_path, kind):
    here = seen(machines.here("3.12", computer.path))
    bus.pci_devices.cache_clear()
    with machines.saved(str(packed(computer, tmp_path, kind)), "3.12") as machine:
        assert seen(machine) == here
        assert (machine.system, machine.python, machine.is_here) == (
            "linux",
            "3.12",
            False,
        )
    assert (here.nvidia, here.kind) == ("550.54.15", "WSL2")
    (present,) = here.present
    assert (present.label, present.backend) == ("NVIDIA GPU", "cuda")


def test_what_is_saved_is_little_and_of_accelerators_alone(computer):
    computer.write(machines.ALPINE, "3.22.1")
    computer.write(
        machines.MACOS,
        "<key>ProductName</key>\n<string>macOS</string>\n<key>ProductVersion</key>\n<string>15.3</string>",
    )
    document = machines.recorded(machines.here("3.12", computer.path), known_files())
    assert (
        document["files"][machines.MACOS] == "<key>ProductVersion</key>\n<string>15.3"
    )
    assert sorted(document["files"]) == [
        machines.MACOS, "/dev/nvidia0", machines.ALPINE, "/proc/driver/nvidia/version", "/proc/version",
        "/sys/bus/pci/devices/0000:17:00.0/modalias", "/sys/bus/pci/devices/0000:19:00.0/modalias",
        "/usr/local/Ascend/cann-9.1.0/x86_64-linux/ascend_toolkit_install.info",
    ]  # fmt: skip
    assert "somebody" not in json.dumps(document)


TREE = {
    "sys/module/nvidia/version": b"580.65.06",
    "proc/version": b"Linux version 6.8",
    "dev/nvidia0": b"",
}


def of_document(name="/dev/nvidia0", text="", **more):
    return json.dumps({"files": {name: text}, **more}).encode()


def exchanged(data, at, new):
    return data[:at] + new + data[at + len(new) :]


LONG = bytes(2**23)
#: What a stranger may send, and what the refusal says.
STRANGE = {
    "no document": (
        lambda: b"[1]",
        "is none of what is expected: a folder or an archive",
    ),
    "zip bomb": (lambda: of_zip({"machine.json": LONG}), "is too large"),
    "zip of many": (
        lambda: of_zip({f"dev/{n}": b"" for n in range(1001)}),
        "is too large",
    ),
    "tar bomb": (lambda: gzip.compress(of_tar({"dev/x": LONG}), 1), "is too large"),
    "tar of long names": (
        lambda: of_tar({"dev/x": LONG[: 2**17]}, kind=tarfile.GNUTYPE_LONGNAME),
        "is too large",
    ),
    "deep": (lambda: of_document("/dev" + "/a" * 40), "is too large"),
    "long document": (lambda: of_document(text="x" * 2**22), "is too large"),
    "nested": (lambda: b'{"files":' * 100_000, "none of what is expected"),
    "outside": (
        lambda: of_zip({**TREE, "../../escaped": b"x"}),
        "is refused: .* '../../escaped'",
    ),
    "no text": (
        lambda: of_document(text=[1]),
        "is damaged: '/dev/nvidia0' has .1., expected a text",
    ),
    "no word": (
        lambda: of_document(python="3 ;"),
        "is damaged: its python is '3 ;', expected one word",
    ),
    "encrypted zip": (
        lambda: of_zip(TREE, 0).replace(b"\x14\0\0\0", b"\x14\0\1\0"),
        "is encrypted",
    ),
    "broken zip": (
        lambda: exchanged(of_zip(TREE, 0), 60, b"XXXX"),
        "is damaged: Bad CRC-32",
    ),
    "cut zip": (lambda: of_zip(TREE)[:-30], "is damaged: File is not a zip file"),
    "tar cut between two": (
        lambda: of_tar(TREE)[:1024],
        "is damaged or cut: empty header",
    ),
    "tar damaged": (
        lambda: exchanged(of_tar(TREE), 1024, b"XXXX"),
        "is damaged or cut: bad checksum",
    ),
    "damaged checksum": (
        lambda: exchanged(gzip.compress(of_tar(TREE)), -8, b"XXXX"),
        "CRC check failed",
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_strangers_file_is_read_whole_and_within_bounds_or_refused_by_name(
    tmp_path, monkeypatch, what
):
    monkeypatch.setattr(archives, "_UNPACKED", 2**22)
    monkeypatch.setattr(archives, "_MEMBERS", 1000)
    data, why = STRANGE[what]
    path = tmp_path / "machine"
    path.write_bytes(data())
    with (
        bounded(size=2**24),
        pytest.raises(
            machines.MachineFileError, match=f"machine {why}|machine .*{why}"
        ),
        machines.saved(str(path)),
    ):
        pass
    assert not (tmp_path.parent / "escaped").exists()


def test_what_is_no_file_in_a_folder_counts_by_its_name(computer, tmp_path):
    version = computer.root / "proc/driver/nvidia/version"
    version.unlink()
    os.mkfifo(version)
    (computer.root / "sys/module/nvidia").mkdir(parents=True)
    (computer.root / "sys/module/nvidia/version").symlink_to("/dev/zero")
    with bounded(), machines.saved(str(computer.root)) as machine:
        assert [present.label for present in seen(machine).present] == ["NVIDIA GPU"]
        assert seen(machine).nvidia == ""
    for path, why in {
        version: "is neither a file nor a folder",
        tmp_path / "gone": "cannot be read: No such",
    }.items():
        with bounded(), pytest.raises(ValueError, match=f"{path} {why}"):
            machines.saved(str(path)).__enter__()
    with (
        pytest.raises(machines.MachineFileError),
        machines.saved(str(computer.root / "dev")),
    ):
        pass


def test_an_unpacked_bundle_is_its_document(tmp_path):
    (tmp_path / machines.FILE).write_bytes(
        of_document("/sys/module/nvidia/version", "580.65.06")
    )
    with machines.saved(str(tmp_path)) as machine:
        assert machine.text("/sys/module/nvidia/version") == "580.65.06"


def test_a_signal_leaves_no_folder(tmp_path):
    (tmp_path / "m.json").write_bytes(of_document())
    program = (
        "import os, signal\nfrom accel_tools.setup.machines import saved\n"
        "with saved('m.json') as machine: os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = run_python(
        ["-c", program], {**os.environ, "TMPDIR": str(tmp_path)}, cwd=tmp_path
    )
    assert (done.returncode, os.listdir(tmp_path)) == (128 + 15, ["m.json"])


DRIVERS = [
    ("nv_dispi.inf_amd64_0f6f1c6d7b1b", "NVIDIA GPU"),
    ("u0402153.inf_amd64_1", "AMD GPU"),
    ("iigd_dch.inf_amd64_1", "Intel integrated GPU"),
    ("iigd_dch_d.inf_amd64_1", "Intel discrete GPU"),
    ("usbaudio.inf_amd64_1", None),
]


@pytest.mark.parametrize(("name", "label"), DRIVERS)
def test_windows_drivers_name_the_makers(tmp_path, monkeypatch, name, label):
    monkeypatch.setattr(vendors, "known_hardware", lambda _: ())
    for system, folder in (
        ("linux", machines.WSL_DRIVERS),
        ("win32", machines.WINDOWS_DRIVERS),
    ):
        computer = Computer(tmp_path / system)
        computer.write(f"{folder}/{name}/x")
        found = seen(machines.Machine(computer.path, system, "x86_64", "3.12", "file"))
        assert [present.label for present in found.present] == (
            [label] if label else []
        )


@pytest.fixture
def wsl(tmp_path):
    """WSL2 with an NVIDIA GPU, whose files have no driver's version."""
    made = Computer(tmp_path / "wsl")
    made.write("/proc/version", "Linux version 6.6.87.2-microsoft-standard-WSL2")
    made.write(f"{machines.WSL_DRIVERS}/nv_dispi.inf_amd64_0/x")
    return made


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """`nvidia_smi(script)` puts such a program on PATH, and gives the file with its arguments."""

    def put(script):
        asked = tmp_path / "asked"
        program = executable(
            tmp_path / "bin/nvidia-smi", f'echo "$@" > {asked}\n{script}'
        )
        monkeypatch.setenv(
            "PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
        )
        return asked

    return put


def test_in_wsl2_nvidia_smi_names_the_driver_and_a_saved_machine_keeps_it(
    wsl, nvidia_smi, tmp_path
):
    asked = nvidia_smi(
        "echo 560.94, 0x1B8010DE; echo 560.94, 0x1b8010de; echo 560.94, [N/A]"
    )
    here = machines.here("3.12", wsl.path)
    assert (
        asked.read_text()
        == "--query-gpu=driver_version,pci.device_id --format=csv,noheader\n"
    )
    assert here.nvidia_smi.splitlines() == [
        "560.94, 0x1B8010DE",
        "560.94, 0x1b8010de",
        "560.94",
    ]
    assert (seen(here).nvidia, seen(here).generation) == ("560.94", VOLTA)
    document = machines.recorded(here, {})
    asked.unlink()
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document))
    with machines.saved(str(file)) as machine:
        assert planned(machine).torch_backend == "cu126"
    del document["nvidia_smi"]  # as older ones lack it
    file.write_text(json.dumps(document))
    with machines.saved(str(file)) as machine:
        assert "no file in WSL2 has the version" in planned(machine).unknown
    assert not asked.exists()


def test_a_saved_windows_keeps_its_gpu_and_its_driver(tmp_path):
    computer = Computer(tmp_path / "windows")
    for name in ("nv_dispi.inf_amd64_0", "usbaudio.inf_amd64_0"):
        computer.write(f"{machines.WINDOWS_DRIVERS}/{name}/x")
    here = machines.Machine(
        computer.path, "win32", "AMD64", "3.12", nvidia_smi="527.41"
    )
    document = machines.recorded(here, {})
    assert list(document["files"]) == [
        f"{machines.WINDOWS_DRIVERS}/nv_dispi.inf_amd64_0/x"
    ]
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document))
    with machines.saved(str(file)) as machine:
        found = planned(machine)
    assert (found.target, found.torch_backend) == (
        "NVIDIA GPU",
        "cu118",
    )  # cu129 on Linux
    assert (
        "only for 452.39 and newer"
        in planned(here._replace(nvidia_smi="451.48")).unknown
    )


FAILING = [
    "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
    "echo 560.94; exit 1", "echo '[N/A], 0x1B8010DE'", "printf '\\377\\376'", "sleep 60",
    "exec sleep 60",
]  # fmt: skip


@pytest.mark.parametrize("script", FAILING)
def test_an_nvidia_smi_that_fails_or_hangs_leaves_the_driver_unknown(
    wsl, nvidia_smi, monkeypatch, script
):
    monkeypatch.setattr(machines, "_PATIENCE", 0.3)
    asked = nvidia_smi(script)
    here = machines.here("3.12", wsl.path)
    assert asked.exists()
    assert here.nvidia_smi == ""
    found = planned(here)
    assert (
        found.unknown
        == "no file in WSL2 has the version of NVIDIA's driver, and nvidia-smi names none"
    )
    assert found.url


def test_an_nvidia_smi_that_cannot_run_leaves_the_driver_unknown(wsl, nvidia_smi):
    nvidia_smi("").parent.joinpath("bin/nvidia-smi").write_text("#!/nowhere/sh\n")
    assert machines.here("3.12", wsl.path).nvidia_smi == ""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/version", "Linux version 6.8.0-generic"),
        ("/sys/module/nvidia/version", "550.54.15"),
    ],
)
def test_elsewhere_and_where_a_file_has_the_version_nvidia_smi_is_left_alone(
    wsl, nvidia_smi, path, text
):
    wsl.write(path, text)
    asked = nvidia_smi("echo 560.94")
    assert machines.here("3.12", wsl.path).nvidia_smi == ""
    assert not asked.exists()
