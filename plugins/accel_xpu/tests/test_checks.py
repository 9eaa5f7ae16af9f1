"""What `accel doctor` looks into, on trees of files."""

import pytest

from accel_core import TorchBuild
from accel_xpu.checks import level_zero_driver

XPU = TorchBuild("2.13.0+xpu", xpu="20250101")


@pytest.mark.parametrize(
    ("files", "build", "level"),
    [
        ((), XPU, "ok"),
        (("dev/dri/renderD128",), TorchBuild("2.13.0+cpu"), "ok"),
        (("dev/dri/renderD128",), XPU, "error"),
        (("dev/dri/renderD128", "usr/lib64/libze_intel_gpu.so.1"), XPU, "ok"),
        (("dev/dri/renderD128", "opt/intel/libze_intel_gpu.so.1"), XPU, "ok"),
    ],
)
def test_the_users_side_of_intels_driver(computer, files, build, level):
    for file in files:
        computer.write(file)
    variables = {"LD_LIBRARY_PATH": "/opt/intel"}
    found = level_zero_driver(computer.root, build, variables)
    assert found.level == level
    assert ("libze-intel-gpu1" in found.step) == (level == "error")
