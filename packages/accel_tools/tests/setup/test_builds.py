"""PyTorch's builds: the table has uv's own choice at each of its borders."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest
from accel_tests.children import may_mount
from packaging.version import Version

from accel_tools.setup import builds

needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="asks uv")

#: Each driver at a border of uv's and the one before it, and a newer one.
DRIVERS = [
    "375.25", "375.26", "384.80", "384.81", "390.45", "390.46", "396.25", "396.26", "410.47", "410.48",
    "418.38", "418.39", "440.32", "440.33", "450.36.05", "450.36.06", "450.80.01", "450.80.02", "525.60.12",
    "525.60.13", "579.99", "580", "595.10",
]  # fmt: skip
#: The same for Windows.
DRIVERS_ON_WINDOWS = [
    "376.50", "376.51", "385.53", "385.54", "391.28", "391.29", "398.25", "398.26", "411.30", "411.31",
    "418.95", "418.96", "441.21", "441.22", "451.21", "451.22", "452.38", "452.39", "528.32", "528.33",
    "579.99", "580", "596.36",
]  # fmt: skip
ARCHITECTURES = [
    "gfx803", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1101", "gfx1102",
    "gfx1150", "gfx1151", "gfx1152", "gfx1200", "gfx1201",
]  # fmt: skip


def uv_chooses(system="linux", within=(), **variables):
    """The index in which uv looks for torch: its error names the address, as the proxy refuses to connect."""
    command = [
        *within, "uv", "pip", "compile", "-", "--no-cache", "--no-config", "--no-deps",
        "--torch-backend=auto", "--python", sys.executable, "--python-platform", system,
    ]  # fmt: skip
    environ = {
        "PATH": os.environ["PATH"],
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "UV_HTTP_RETRIES": "0",
        **variables,
    }
    done = subprocess.run(
        command,
        input="torch",
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    address = re.search(rf"{re.escape(builds.INDEX)}/([\w.]+)/torch/", done.stderr)
    assert address or "Unknown AMD GPU architecture" in done.stderr, done.stderr
    return address[1] if address else ""


@needs_uv
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_table_has_uvs_choice_for_a_driver(driver):
    choice = uv_chooses(UV_CUDA_DRIVER_VERSION=driver)
    assert builds.newest_build_for_driver(driver).name == choice.replace("cpu", "")


@needs_uv
@pytest.mark.parametrize("driver", DRIVERS_ON_WINDOWS)
def test_the_table_has_uvs_choice_for_a_driver_on_windows(driver):
    choice = uv_chooses("windows", UV_CUDA_DRIVER_VERSION=driver)
    assert builds.newest_build_for_driver(
        driver, system="win32"
    ).name == choice.replace("cpu", "")


@needs_uv
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_table_has_uvs_choice_for_an_amd_gpu(architecture):
    choice = uv_chooses(UV_AMD_GPU_ARCHITECTURE=architecture)
    assert builds.newest_build_for_amd_gpu(architecture).name == choice


#: Hides the machine's own folder below an empty one, in which the file appears, and runs the arguments.
WITH_FILE = """set -e
mount -t tmpfs tmpfs $(dirname $(dirname $FILE)) && mkdir $(dirname $FILE) && echo "$TEXT" > $FILE
exec "$@"
"""


@needs_uv
@pytest.mark.skipif(not may_mount(), reason="may not make a mount namespace")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("/sys/module/nvidia/version", "550.54.15"),
        (
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5",
        ),
    ],
)
def test_uv_reads_the_driver_in_the_files_that_setup_reads(file, text):
    within = ["unshare", "--mount", "sh", "-c", WITH_FILE, "sh"]
    assert uv_chooses(within=within, FILE=file, TEXT=text) == "cu129"


#: A driver, a release of torch, and the newest build of it that the driver runs; none where it is empty.
NEWEST_BUILDS = [
    ("470.57.02", "2.6.0", "cu118"),
    ("470.57.02", "2.8", ""),
    ("470.57.02", "2.9.1", ""),
    ("470.57.02", "2.12.0", ""),
    ("470.57.02", "2.15.0", ""),
    ("550.54.15", "2.6.0", "cu126"),
    ("550.54.15", "2.8", "cu129"),
    ("550.54.15", "2.9.1", "cu128"),
    ("550.54.15", "2.12.0", "cu126"),
    ("550.54.15", "2.15.0", ""),
    ("580.65.06", "2.6.0", "cu126"),
    ("580.65.06", "2.8", "cu129"),
    ("580.65.06", "2.9.1", "cu130"),
    ("580.65.06", "2.12.0", "cu132"),
    ("580.65.06", "2.15.0", "cu132"),
]


@pytest.mark.parametrize(("driver", "torch", "build"), NEWEST_BUILDS)
def test_a_version_of_torch_takes_the_newest_build_that_the_driver_runs(
    driver, torch, build
):
    assert builds.newest_build_for_driver(driver, torch).name == build


@pytest.mark.parametrize(("system", "build"), [("linux", "cu129"), ("win32", "cu126")])
def test_a_driver_runs_an_older_build_on_windows(system, build):
    assert builds.newest_build_for_driver("560.94", "2.13.0", system).name == build


#: A release of torch, the newest where it is empty, and its last build with code for Vega.
BUILDS_FOR_VEGA = [
    ("", "rocm6.3"),
    ("2.6.0", "rocm6.2.4"),
    ("2.8", "rocm6.3"),
    ("2.9.1", "rocm6.3"),
    ("2.12.0", ""),
]


@pytest.mark.parametrize("architecture", ["gfx900", "gfx906"])
@pytest.mark.parametrize(("torch", "build"), BUILDS_FOR_VEGA)
def test_a_vega_card_takes_the_last_build_whose_libraries_have_code_for_it(
    architecture, torch, build
):
    assert builds.newest_build_for_amd_gpu(architecture, torch).name == build


PYTHONS = [
    ("3.12", "", ""),
    ("3.9", "2.7.1", ""),
    ("3.10", "", ""),
    ("3.15", "", ""),
    (
        "3.9",
        "",
        (
            "torch 2.15 has wheels for Python 3.11 to 3.15, "
            "and torch 2.14 has wheels for Python 3.10 and newer"
        ),
    ),
    ("3.10", "2.15.0", "torch 2.15.0 has wheels for Python 3.11 to 3.15"),
    ("3.14", "2.8.0", "torch 2.8.0 has wheels for Python 3.9 to 3.13"),
]


@pytest.mark.parametrize(("python", "torch", "why"), PYTHONS)
def test_a_python_without_wheels_is_named(python, torch, why):
    assert builds.why_no_wheels_for_python(python, torch) == (
        why and f"{why}, but this is Python {python}"
    )


@pytest.mark.nightly(reason="asks PyPI: red on the day of a new torch")
def test_pypi_has_the_wheels_of_the_table():
    """Every release of the table, and no newer one, with its Pythons."""
    address = "https://pypi.org/simple/torch/"
    asked = urllib.request.Request(
        address, headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            files = json.load(answer)["files"]
    except OSError as error:
        pytest.skip(f"{address}: {error}")
    wheel = re.compile(
        r"torch-(\d+\.\d+)\.\d+-cp3(\d+)-cp3\d+-manylinux\w*_x86_64\.whl"
    )
    pythons = {}
    for file in files:
        if found := wheel.fullmatch(file["filename"]):
            pythons.setdefault(found[1], set()).add(int(found[2]))
    of_table = {
        version: (release.oldest_python, release.newest_python)
        for version, release in builds.RELEASES.items()
    }
    newer = {release for release in pythons if Version(release) >= Version("2.6")}
    assert {
        r: (f"3.{min(pythons[r])}", f"3.{max(pythons[r])}") for r in newer
    } == of_table
