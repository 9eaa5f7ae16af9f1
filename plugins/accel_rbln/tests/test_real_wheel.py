"""The real torch-rbln from the registry, on a machine without an NPU and without rebel-compiler.

A hundredth of the size of other vendors' packages: a session of its own would take longer to make.

The first five texts of seen.json are from the real import of 0.12.0: without rebel-compiler, and with
libraries made for the test in its place. The others are strings of its libraries.
"""

import json
import os
import venv

import pytest
from accel_tests.children import run_command, run_python, without

WHEEL = "torch-rbln==0.12.0"
COMPILER = "install rebel-compiler from Rebellions' package index"

pytestmark = pytest.mark.nightly(reason="downloads Rebellions' wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The folder with the unpacked wheel."""
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("rbln")
    venv.create(made / "pip", with_pip=True)
    pip = [
        f"{made}/pip/bin/python",
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--target",
        f"{made}/wheel",
        WHEEL,
    ]
    done = run_command(pip, os.environ, timeout=600)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"the registry has no {WHEEL} for this Python and system")
    assert done.returncode == 0, done.stderr
    return made / "wheel"


def run(wheel, *arguments, **variables):
    environ = {
        **without("TORCH_DEVICE_BACKEND_AUTOLOAD", "COLUMNS"),
        "PYTHONPATH": str(wheel),
        **variables,
    }
    return run_python(arguments, environ)


def test_torch_itself_cannot_be_imported(wheel):
    done = run(wheel, "-c", "import torch")
    assert done.returncode != 0
    assert "Could not find librbln.so" in done.stderr


def test_a_program_goes_on_with_the_cpu(wheel):
    done = run(
        wheel,
        "-c",
        "import accel_core; print(accel_core.get_accelerator().name)",
        DS_ACCELERATOR="",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["cpu"]


def test_a_pin_says_what_is_missing(wheel):
    done = run(
        wheel,
        "-c",
        "import accel_core; accel_core.get_accelerator()",
        DS_ACCELERATOR="rbln",
    )
    assert "is not usable: torch_rbln failed: FileNotFoundError" in done.stderr
    assert COMPILER in done.stderr


def test_the_verdict_has_no_device_and_names_the_compiler(wheel):
    done = run(wheel, "-m", "accel_core", "why", "rbln", "--json")
    verdict = json.loads(done.stdout)["backends"][0]
    assert verdict["status"] == "no_device", done.stdout
    assert verdict["reason"].startswith(
        "no Rebellions NPU found (looked for /dev/rbln[0-9]*, PCI"
    )
    assert COMPILER in verdict["hint"]


def test_the_doctor_has_one_remedy_for_one_cause(wheel):
    """That torch's autoload fails too is not a second finding."""
    found = run(wheel, "-m", "accel_core", "doctor", "--no-experiments").stdout
    assert (
        f"pip uninstall torch-rbln. (On a machine with the device, do this instead: {COMPILER}"
        in found
    )
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in found
