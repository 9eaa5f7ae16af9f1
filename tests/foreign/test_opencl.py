"""torch-opencl, built for another torch: the diagnosis names the package, the cause and a next step."""

import ctypes.util
import json
import os

import pytest
from accel_tests.children import clean_environment, run_python

PACKAGE = os.environ.get("ACCEL_FOREIGN_OPENCL", "")

pytestmark = [
    pytest.mark.skipif(
        not PACKAGE,
        reason="torch-opencl is not installed; `./dev foreign` has an environment with it",
    ),
    pytest.mark.skipif(
        not ctypes.util.find_library("OpenCL"),
        reason="no OpenCL loader: apt install ocl-icd-libopencl1 pocl-opencl-icd",
    ),
]


@pytest.fixture(scope="module")
def verdict():
    done = run_python(
        ["-m", "accel_core", "list", "--json"],
        clean_environment(PYTHONPATH=PACKAGE),
        timeout=120,
    )
    backends = json.loads(done.stdout)["backends"]
    (verdict,) = [each for each in backends if each["distribution"] == "torch-opencl"]
    return verdict


def test_it_is_broken(verdict):
    assert verdict["status"] == "broken"


def test_the_reason_names_the_package_and_the_symbol(verdict):
    assert "torch-opencl 0.1.0.dev23 fails when torch loads it" in verdict["reason"]
    assert "built for another torch" in verdict["reason"]
    assert "undefined symbol" in verdict["reason"]


def test_the_next_step_lets_torch_be_imported(verdict):
    """The hint names TORCH_DEVICE_BACKEND_AUTOLOAD=0: with it torch is imported, without it not."""
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in verdict["hint"]
    for autoload, status in (("0", 0), ("1", 1)):
        environ = clean_environment(
            PYTHONPATH=PACKAGE, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload
        )
        assert run_python(["-c", "import torch"], environ).returncode == status
