"""Code in torch that runs only if CUDA is available."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="session")
def branches(simulated, shared_by_workers):
    """What one process prints, by name."""
    program = PROGRAMS / "cuda_branches.py"
    return shared_by_workers("cuda-branches", lambda: simulated("cuda", program).answer)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("version", [0, 0]),
        ("config names the simulation", True),
        ("Triton kernels are disabled", True),
        ("has Triton", False),
        ("sync debug mode", 1),
        ("allocator", "native"),
        ("has _cuda_getDeviceCount", True),
        ("has _cuda_getCurrentBlasHandle", False),
    ],
)
def test_torchs_branches_for_cuda_work(branches, name, expected):
    assert branches[name] == expected


def test_a_missing_function_of_torch_is_named_as_not_simulated(branches):
    assert branches["blas handle"].startswith(
        "NotSimulatedError: torch._C._cuda_getCurrentBlasHandle is not simulated, because "
    )


def test_a_jiterated_function_is_named_as_not_simulated(branches):
    name = "_cuda_jiterator_compile_and_launch_kernel"
    assert f"{name} is not simulated" in branches["jiterated function"]


def test_a_property_of_a_physical_chip_is_named_as_missing(branches):
    assert branches["PCI bus"].endswith(
        "the properties of a simulated device do not include 'pci_bus_id'"
    )


def test_each_file_of_torch_that_checks_for_cuda_is_listed():
    """A new torch asks in other places: try them on the simulated cuda, and write down what they do."""
    listed = re.findall(
        r'^"(.+?)" = "(?:works|refused|not reached)',
        Path(__file__).with_name("cuda_branches.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    torch = Path(find_spec("torch").submodule_search_locations[0])
    beyond = ("_inductor/", "_vendor/", "testing/", "utils/benchmark/", "utils/data/")
    asking = {"cuda/__init__.py"}  # which defines it
    for file in torch.rglob("*.py"):
        name = file.relative_to(torch).as_posix()
        text = file.read_text(encoding="utf-8", errors="replace")
        if not name.startswith(beyond) and "cuda.is_available()" in text:
            asking.add(name)
    assert sorted(listed) == sorted(asking)


NATIVE = """
import json, torch
from torch._native import common_utils
print(json.dumps(common_utils.check_native_jit_disabled()))
"""


def test_torch_uses_no_triton_kernels_which_need_the_driver(simulated):
    """Many packages bring triton: torch then has Triton kernels for some shapes of `bmm`."""
    assert simulated("cuda", NATIVE).answer is True
