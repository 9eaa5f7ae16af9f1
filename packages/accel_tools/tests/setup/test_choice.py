"""One folder with several environments: which one a machine takes, and how its Python is started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel_core.hardware import vendors
from accel_tools.setup import choice, folder
from accel_tools.setup.hardware import detect_hardware
from accel_tools.setup.machines import Machine

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /sys and /dev"
)

MACHINES = [
    json.loads(line)["machine"]
    for file in sorted(Path(__file__).with_name("machines").glob("*.jsonl"))
    for line in file.read_text("utf-8").splitlines()
]
H100 = {"pci": ["10de:2330/030200"], "nodes": ["/dev/nvidia0"], "nvidia": "580.65.06"}
OLD_DRIVER = {**H100, "nvidia": "550.54.15"}
V100 = {"pci": ["10de:1db4/030200"], "nvidia": "580.65.06"}
MI250 = {"pci": ["1002:740f/038000"], "nodes": ["/dev/kfd"], "gfx": [90010]}
B580 = {"pci": ["8086:e20b/030000"]}
ASCEND = {"pci": ["19e5:d802/120000"], "nodes": ["/dev/davinci0"]}
TORCH = {
    "cuda=13.0": "2.14.0+cu130",
    "cuda=12.6": "2.13.0+cu126",
    "rocm=7.2": "2.13.0+rocm7.2",
}


@pytest.fixture
def folder_with(tmp_path):
    """`folder_with("cuda=13.0", "cpu")`: a folder with environments whose Python prints their name."""

    def make(*names):
        into = tmp_path / "torch folder"
        machine = Machine("/nowhere", "linux", "x86_64", "3.12")
        for each in folder.plan_environments(names, machine):
            place = into / "environments" / each.name
            given = each.name.replace("-", "=")
            python = place / "bin" / "python"
            folder.write_atomically(
                python, f'#!/bin/sh\necho {each.name} "$@"\n', 0o755
            )
            program = place / "bin" / "accel"
            folder.write_atomically(program, "#!/usr/bin/env python\n", 0o755)
            version = TORCH.get(given, "2.13.0+cpu")
            folder.mark_complete(
                place, folder.environment_record(each.plan, version, "x86_64")
            )
        folder.write_hardware_and_choice_module(into)
        folder.write_launchers(into)
        return into

    return make


@pytest.fixture
def chosen(described_machine, folder_with):
    """`chosen(machine, names, pin)`: the name of the environment, and the choice itself."""

    def choose(machine, names, pin=""):
        into = folder_with(*names)
        root = described_machine(machine).root
        found = choice.choose(str(into), {"DS_ACCELERATOR": pin}, str(root))
        return found.environment["name"], found

    return choose


# --- The hardware -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine", [m for m in MACHINES if m.get("system", "linux") == "linux"]
)
def test_it_finds_the_same_hardware_as_accel_setup(
    described_machine, tmp_path, machine
):
    root = described_machine(machine).root
    folder.write_hardware_and_choice_module(tmp_path)
    labels = {
        device.row["label"]
        for device in choice.detect_devices(str(tmp_path), str(root))
    }
    assert labels == {vendor.label for vendor in vendors.known_hardware(root)}


@pytest.mark.parametrize("machine", [H100, V100, MI250, B580, ASCEND])
def test_the_best_hardware_comes_first_as_for_accel_setup(
    described_machine, tmp_path, machine
):
    console = ["1002:515e/030000@0000:00:01.0", "8086:4c8b/030000@0000:00:02.0"]
    described = described_machine({**machine, "pci": [*console, *machine["pci"]]})
    folder.write_hardware_and_choice_module(tmp_path)
    found = choice.detect_devices(str(tmp_path), str(described.root))
    assert [device.row["label"] for device in found] == [
        present.label for present in detect_hardware(described).devices
    ]


EVERY = ("cuda=13.0", "cuda=12.6", "rocm=7.2", "xpu", "npu", "cpu")


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (H100, "cuda-13.0"),
        (MI250, "rocm-7.2"),
        (B580, "xpu"),
        (ASCEND, "npu"),
        ({}, "cpu"),
    ],
    ids=["NVIDIA", "AMD", "Intel", "Ascend", "none"],
)
def test_each_machine_takes_the_environment_of_its_hardware(chosen, machine, name):
    assert chosen(machine, EVERY)[0] == name


def test_an_older_driver_takes_the_build_that_it_runs(chosen):
    assert chosen(OLD_DRIVER, EVERY)[0] == "cuda-12.6"


def test_a_gpu_that_the_newer_build_has_no_code_for_takes_the_older_build(chosen):
    assert chosen(V100, EVERY)[0] == "cuda-12.6"


def test_a_driver_that_is_too_old_for_every_build_takes_the_cpu_with_a_warning(chosen):
    name, found = chosen(OLD_DRIVER, ("cuda=13.0", "cpu"))
    assert name == "cpu"
    assert (
        "cuda-13.0 needs NVIDIA driver 580 or newer, but this machine has 550.54.15"
        in found.warning
    )


def test_an_amd_gpu_that_the_build_has_no_code_for_takes_the_cpu(chosen):
    name, found = chosen({**MI250, "gfx": [90006]}, ("rocm=7.2", "cpu"))
    assert name == "cpu"
    assert "rocm-7.2 has no code for gfx906" in found.warning


def test_a_pinned_cpu_without_its_own_environment_takes_the_devices(chosen):
    """`accel run` pins the CPU for its ranks if it could not use the device."""
    name, found = chosen(H100, ("cuda=12.6", "xpu"), "cpu")
    assert (name, found.reason) == ("cuda-12.6", "DS_ACCELERATOR=cpu")


def test_a_pinned_cpu_on_a_machine_without_any_environment_is_an_error(chosen):
    with pytest.raises(LookupError, match=r"no complete environment for cpu"):
        chosen({}, ("cuda=12.6", "xpu"), "cpu")


def test_hardware_without_an_environment_takes_the_cpu_and_names_the_command(chosen):
    name, found = chosen(ASCEND, ("cuda=13.0", "cpu"))
    assert name == "cpu"
    assert "no environment fits the Ascend NPU" in found.warning
    assert found.warning.endswith("torch folder' npu")


def test_an_integrated_gpu_without_an_environment_is_not_worth_a_warning(chosen):
    name, found = chosen({"pci": ["8086:a7a0/030000@0000:00:02.0"]}, ("cpu",))
    assert name == "cpu"
    assert found.warning == ""


# --- The pin ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pin", "name"),
    [
        ("cpu", "cpu"),
        ("xpu", "xpu"),
        ("npu, cpu", "cpu"),
        ("CUDA@accel-cuda", "cuda-13.0"),
    ],
)
def test_a_pin_decides_before_the_hardware(chosen, pin, name):
    found = chosen(H100, ("cuda=13.0", "xpu", "cpu"), pin)
    assert found[0] == name


def test_a_pin_of_another_build_than_torch_has_leaves_the_choice_to_the_hardware(
    chosen,
):
    assert chosen(H100, ("cuda=13.0", "cpu"), "generic")[0] == "cuda-13.0"


def test_a_pin_without_an_environment_is_an_error_with_the_command(chosen):
    with pytest.raises(
        LookupError, match=r"no complete environment for npu.*accel setup --into .* npu"
    ):
        chosen(H100, ("cuda=13.0", "cpu"), "npu")


# --- The folder -------------------------------------------------------------------------


def test_an_environment_without_its_mark_is_not_used(described_machine, folder_with):
    into = folder_with("cuda=13.0", "cpu")
    (into / "environments" / "cuda-13.0" / choice.MARK).unlink()
    found = choice.choose(str(into), {}, described_machine(H100).root)
    assert found.environment["name"] == "cpu"


def run(program, *arguments, **variables):
    """Start a program of the folder; return its output, without what it writes to stderr."""
    env = {**os.environ, **variables}
    return subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, check=False
    )


def test_the_launcher_starts_the_python_that_was_chosen(folder_with):
    into = folder_with("cpu", "xpu")
    done = run(into / "bin" / "python", "train.py", "--lr", "a b", DS_ACCELERATOR="xpu")
    assert done.stdout == f"xpu -X accel_launcher={into}/bin/python train.py --lr a b\n"


def test_verbose_names_the_environment_and_the_reason(folder_with):
    into = folder_with("cpu", "xpu")
    done = run(into / "bin" / "python", "-v", DS_ACCELERATOR="xpu")
    what = f"accel: environment xpu of {into}, torch 2.13.0+cpu: DS_ACCELERATOR=xpu"
    assert done.stderr.splitlines() == [what]


def test_a_link_and_another_path_to_the_folder_lead_to_the_same_environment(
    folder_with, tmp_path
):
    into = folder_with("cpu")
    (tmp_path / "moved").mkdir()
    moved = into.rename(tmp_path / "moved" / "there")
    (tmp_path / "python").symlink_to(moved / "bin" / "python")
    (tmp_path / "link").symlink_to(moved)
    env = {"DS_ACCELERATOR": "cpu"}
    outputs = [
        run(path, "-c", "pass", **env).stdout
        for path in (tmp_path / "python", tmp_path / "link" / "bin" / "python")
    ]
    assert [text.partition(" ")[0] for text in outputs] == ["cpu", "cpu"]


def test_many_processes_start_at_once_from_a_folder_that_nobody_can_write(folder_with):
    into = folder_with("cpu")
    for path in [into, *into.rglob("*")]:
        path.chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in into.rglob("*")}
    env = {**os.environ, "DS_ACCELERATOR": "cpu"}
    command = [into / "bin" / "python", "-c", "pass"]
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(16)
    ]
    answers = [process.communicate()[0].split()[0] for process in started]
    assert answers == [b"cpu"] * 16
    assert {path: path.stat().st_mtime_ns for path in into.rglob("*")} == before
    for path in [into, *into.rglob("*")]:
        path.chmod(0o755)


def test_a_machine_without_the_folders_python_gets_the_next_step(
    folder_with, monkeypatch
):
    monkeypatch.setattr(folder, "base_python", lambda: "/opt/py thon/bin/python3.12")
    into = folder_with("cpu")
    done = run(into / "bin" / "python", "-c", "pass")
    assert done.returncode == 127
    assert (
        "the Python at /opt/py thon/bin/python3.12, which this machine lacks"
        in done.stderr
    )


def test_choosing_imports_no_module_that_takes_milliseconds(folder_with):
    """`re` and `json` take 7 ms, `typing` 4 ms, `dataclasses` 10 ms, of the 20 ms that a choice may take."""
    into = folder_with("cpu")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import accel_choice;"
        "accel_choice.choose(sys.argv[2], {}); print(*sys.modules)"
    )
    words = [sys.executable, "-I", "-S", "-c", program, into / "lib", into]
    imported = set(run(*words, DS_ACCELERATOR="cpu").stdout.split())
    slow = {"re", "json", "typing", "dataclasses", "functools", "site", "accel_core"}
    assert "accel_choice" in imported
    assert not imported & slow


# --- The commands -----------------------------------------------------------------------


def test_accel_python_starts_the_folders_python_and_verbose_gives_the_reason(
    folder_with,
):
    into = folder_with("cpu", "xpu")
    words = ["-m", "accel_core", "-v", "python", "--folder", into]
    script = ["train.py", "-v", "--folder"]
    done = run(sys.executable, *words, *script, DS_ACCELERATOR="xpu")
    assert done.stdout.startswith("xpu ")
    assert done.stdout.endswith(" train.py -v --folder\n")
    assert done.stderr.endswith("DS_ACCELERATOR=xpu\n")


def test_accel_run_with_a_folder_starts_the_folders_accel(folder_with):
    into = folder_with("cpu")
    words = ["-m", "accel_core", "run", "--folder", into, "--nnodes", "2", "train.py"]
    done = run(sys.executable, *words, DS_ACCELERATOR="cpu")
    start = f"cpu -X accel_launcher={into}/bin/python {into}/environments/cpu/bin/accel"
    assert done.stdout == f"{start} run --nnodes 2 train.py\n"


def test_accel_run_with_a_folder_that_is_none_names_what_is_missing(tmp_path):
    done = run(
        sys.executable, "-m", "accel_core", "run", "--folder", tmp_path, "train.py"
    )
    assert done.returncode == 1
    assert f"{tmp_path}/bin/accel does not exist" in done.stderr


def test_accel_why_names_the_environment_that_runs_and_the_one_that_would(
    folder_with, monkeypatch
):
    into = folder_with("cpu", "xpu")
    monkeypatch.setattr(sys, "prefix", str(into / "environments" / "cpu"))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert folder.describe_running_environment() == f"cpu of {into}: DS_ACCELERATOR=cpu"
    monkeypatch.setenv("DS_ACCELERATOR", "xpu")
    assert folder.describe_running_environment().endswith(
        "/bin/python would start the environment xpu: DS_ACCELERATOR=xpu"
    )


def test_accel_doctor_rejects_a_path_without_a_folder(tmp_path):
    done = run(sys.executable, "-m", "accel_core", "doctor", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere does not exist, or is not a folder" in done.stderr


def test_accel_doctor_of_an_empty_folder_prints_the_command_that_makes_an_environment(
    tmp_path,
):
    done = run(sys.executable, "-m", "accel_core", "doctor", f"{tmp_path}/")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert text.startswith(f"{tmp_path} has no environment yet. Next step: accel setup")
    assert text.endswith(" cpu")
    assert "ENVIRONMENT" not in text
