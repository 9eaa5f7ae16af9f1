"""What `accel doctor` looks into, on trees of files."""

import runpy
import sys

import pytest

import accel_cuda
from accel_core import TorchBuild
from accel_cuda.checks import (
    container_capabilities,
    driver_library,
    integrated_gpu,
    unified_memory,
    windows_driver,
)

NVRM = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sat Sep 23 15:13:12 UTC 2023\n"
    "GCC version:  gcc version 12.2.0\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (u@h)  Tue Oct 1\n"


def test_unified_memory_is_not_missed_without_a_card(computer):
    assert unified_memory(computer.root).level == "ok"


def test_a_card_without_unified_memory_is_an_error(computer):
    computer.write("dev/nvidia0")
    computer.write("dev/nvidia-caps/nvidia-cap1")
    found = unified_memory(computer.root)
    assert found.level == "error"
    assert found.facts["device nodes"] == "/dev/nvidia0"
    assert "nvidia-modprobe -u" in found.step
    assert "--gpus" not in found.step  # by which the cards came in


def test_a_card_with_unified_memory_is_good(computer):
    computer.write("dev/nvidia0")
    computer.write("dev/nvidia-uvm")
    assert unified_memory(computer.root).level == "ok"


@pytest.mark.parametrize(
    ("value", "level"),
    [("", "ok"), ("all", "ok"), ("compute,utility", "ok"), ("utility", "error")],
)
def test_a_container_that_was_given_no_library_of_cudas(value, level):
    found = container_capabilities({"NVIDIA_DRIVER_CAPABILITIES": value})
    assert found.level == level
    assert ("-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in found.step) == (
        level == "error"
    )


def test_without_a_driver_there_is_no_library_to_compare(computer):
    assert driver_library(computer.root).level == "ok"


@pytest.fixture(params=[NVRM, OPEN], ids=["closed", "open"])
def running_driver(computer, request):
    """A machine whose kernel runs the driver 535.104.05."""
    computer.write("proc/driver/nvidia/version", request.param.format("535.104.05"))
    return computer


def test_a_library_that_is_not_found_may_be_anywhere_else(running_driver):
    assert driver_library(running_driver.root).level == "ok"


@pytest.fixture
def updated_driver(running_driver):
    """The same machine with the library of another release."""
    running_driver.write("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14")
    running_driver.write("usr/lib/x86_64-linux-gnu/libcuda.so.1")
    return running_driver


def test_a_driver_that_was_updated_under_a_running_kernel_is_an_error(updated_driver):
    found = driver_library(updated_driver.root)
    assert found.level == "error"
    assert (
        found.what
        == "the kernel has NVIDIA driver 535.104.05, but libcuda.so has version 550.54.14"
    )


def test_a_library_of_the_running_driver_beside_another_is_good(updated_driver):
    updated_driver.write("usr/lib64/libcuda.so.535.104.05")
    assert driver_library(updated_driver.root).level == "ok"


WITH_ROCM = TorchBuild("2.13.0+rocm6.4", hip="6.4")
#: Nodes of the kernel's driver, with their SIMD units and device: the CPU's GPU, the CPU, a card.
PICASSO, PROCESSOR, CARD = (44, 0x15D8), (0, 0), (28, 0x73FF)


def write_nodes(computer, *nodes):
    for node, (simds, device) in enumerate(nodes):
        text = (
            f"simd_count {simds}\ndevice_id {device}\ndrm_render_minor {128 + node}\n"
        )
        computer.write(f"sys/class/kfd/kfd/topology/nodes/{node}/properties", text)
        computer.write(f"dev/dri/renderD{128 + node}")


@pytest.mark.parametrize("nodes", [[PICASSO], [PICASSO, PROCESSOR]])
def test_a_processors_own_gpu_alone_is_good(computer, nodes):
    write_nodes(computer, *nodes)
    assert integrated_gpu(computer.root, WITH_ROCM).level == "ok"


def test_a_processors_own_gpu_that_rocm_counts_beside_a_card_is_a_warning(computer):
    """ROCm/legacy-rocm-build#3401 and ROCm/TheRock#3392: the CPU's comes first, as at Picasso."""
    write_nodes(computer, PICASSO, PROCESSOR, CARD)
    found = integrated_gpu(computer.root, WITH_ROCM)
    assert found.level == "warning"
    assert found.what.startswith("device 0 is ")
    assert found.step == "export HIP_VISIBLE_DEVICES=1"


def test_a_processors_own_gpu_that_is_hidden_is_good(computer, monkeypatch):
    write_nodes(computer, PICASSO, PROCESSOR, CARD)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert integrated_gpu(computer.root, WITH_ROCM).level == "ok"


WITH_CUDA = TorchBuild("2.13.0", cuda="12.6")
WSL2 = "5.4.72-microsoft-standard-WSL2\n"
#: Files that WSL2 has of Windows, the level, and the next step.
FROM_WINDOWS = [
    ((), "warning", "`wsl --update`"),
    (("dev/dxg",), "warning", "install NVIDIA's driver in Windows"),
    (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"), "ok", ""),
]


@pytest.mark.parametrize(("signs", "level", "step"), FROM_WINDOWS)
def test_what_windows_gives_its_wsl2_decides_the_next_step(
    computer, signs, level, step
):
    """microsoft/WSL#7056: a driver was installed in WSL2, by a Windows that shows it no GPU."""
    for sign in ("proc/sys/kernel/osrelease", *signs):
        computer.write(sign, WSL2)
    found = windows_driver(computer.root, WITH_CUDA)
    assert found.level == level
    assert step in found.step


def test_outside_wsl2_the_driver_of_windows_is_not_looked_for(computer):
    assert windows_driver(computer.root, WITH_CUDA).level == "ok"


def test_a_torch_without_cuda_needs_no_driver_of_windows(computer):
    computer.write("proc/sys/kernel/osrelease", WSL2)
    assert windows_driver(computer.root, TorchBuild("2.13.0")).level == "ok"


@pytest.mark.parametrize(
    ("platform", "library"), [("linux", "nccl"), ("win32", "gloo")]
)
def test_the_communication_backend_is_the_platforms(monkeypatch, platform, library):
    monkeypatch.setattr(sys, "platform", platform)
    declared = runpy.run_path(accel_cuda.__file__)
    assert {declared[name].communication_backend for name in ("CUDA", "ROCM")} == {
        library
    }
