"""Windows and WSL2, where drivers' folders name the GPUs and `nvidia-smi` the driver's version."""

import os
import sys

import pytest
from accel_tests.children import executable
from accel_tests.computers import Computer

from accel_core.hardware import vendors
from accel_tools.setup import machines
from accel_tools.setup.hardware import VOLTA, detect_hardware
from accel_tools.setup.planning import make_plan

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /sys and /dev"
)


DRIVERS = [
    ("nv_dispi.inf_amd64_0f6f1c6d7b1b", "NVIDIA GPU"),
    ("u0402153.inf_amd64_1", "AMD GPU"),
    ("iigd_dch.inf_amd64_1", "Intel integrated GPU"),
    ("iigd_dch_d.inf_amd64_1", "Intel discrete GPU"),
    ("usbaudio.inf_amd64_1", None),
]


@pytest.mark.parametrize(("name", "label"), DRIVERS)
@pytest.mark.parametrize(
    ("system", "folder"),
    [("linux", machines.WSL_DRIVERS), ("win32", machines.WINDOWS_DRIVERS)],
    ids=["wsl", "windows"],
)
def test_the_folder_of_a_windows_driver_names_the_maker(
    tmp_path, monkeypatch, name, label, system, folder
):
    monkeypatch.setattr(vendors, "known_hardware", lambda _: ())
    computer = Computer(tmp_path)
    computer.write(f"{folder}/{name}/x")
    found = detect_hardware(machines.Machine(computer.path, system, "x86_64", "3.12"))
    labels = [present.label for present in found.devices]
    assert labels == ([label] if label else [])


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


def test_in_wsl2_nvidia_smi_names_the_driver_and_the_generation(wsl, nvidia_smi):
    arguments = nvidia_smi(
        "echo 560.94, 0x1B8010DE; echo 560.94, 0x1b8010de; echo 560.94, [N/A]"
    )
    here = machines.here("3.12", wsl.path)
    query = "--query-gpu=driver_version,pci.device_id --format=csv,noheader\n"
    assert arguments.read_text() == query
    assert detect_hardware(here).nvidia_driver == "560.94"
    assert detect_hardware(here).nvidia_generation == VOLTA
    assert make_plan(here).torch_backend == "cu126"


def test_without_nvidia_smi_the_driver_in_wsl2_is_unknown(wsl, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    here = machines.here("3.12", wsl.path)
    assert "no file in WSL2 contains the version" in make_plan(here).why_no_command


def test_windows_needs_a_newer_driver_for_the_same_build_than_linux(tmp_path):
    computer = Computer(tmp_path / "windows")
    computer.write(f"{machines.WINDOWS_DRIVERS}/nv_dispi.inf_amd64_0/x")

    def planned_with(driver):
        return make_plan(
            machines.Machine(computer.path, "win32", "AMD64", "3.12", driver)
        )

    assert planned_with("527.41").torch_backend == "cu118"  # cu129 on Linux
    assert "only for driver 452.39 and newer" in planned_with("451.48").why_no_command


FAILING = [
    "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
    "echo 560.94; exit 1", "echo '[N/A], 0x1B8010DE'", "printf '\\377\\376'", "sleep 60",
    "exec sleep 60",
]  # fmt: skip


@pytest.mark.parametrize("script", FAILING)
def test_an_nvidia_smi_that_fails_or_hangs_leaves_the_driver_unknown(
    wsl, nvidia_smi, monkeypatch, script
):
    monkeypatch.setattr(machines, "_NVIDIA_SMI_SECONDS", 0.3)
    asked = nvidia_smi(script)
    here = machines.here("3.12", wsl.path)
    assert asked.exists()
    assert here.nvidia_smi == ""
    found = make_plan(here)
    assert (
        found.why_no_command
        == "no file in WSL2 contains the version of NVIDIA's driver, and nvidia-smi does not report it"
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
