"""What `accel doctor` looks into, on trees of files."""

import runpy
import sys

import pytest

import accel_cuda
from accel_core import TorchBuild
from accel_cuda.checks import (
    container_capabilities,
    driver_library,
    processors_gpu,
    unified_memory,
    windows_driver,
)

NVRM = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sat Sep 23 15:13:12 UTC 2023\n"
    "GCC version:  gcc version 12.2.0\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (u@h)  Tue Oct 1\n"


def test_cards_without_unified_memory(computer):
    assert unified_memory(computer.root).level == "ok"
    computer.write("dev/nvidia0")
    computer.write("dev/nvidia-caps/nvidia-cap1")
    found = unified_memory(computer.root)
    assert (found.level, found.facts["device nodes"]) == ("error", "/dev/nvidia0")
    assert "nvidia-modprobe -u" in found.step
    assert "--gpus" not in found.step  # by which the cards came in
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


@pytest.mark.parametrize("text", [NVRM, OPEN])
def test_a_driver_that_was_updated_under_a_running_kernel(computer, text):
    assert driver_library(computer.root).level == "ok"
    computer.write("proc/driver/nvidia/version", text.format("535.104.05"))
    assert (
        driver_library(computer.root).level == "ok"
    )  # the library may be anywhere else
    computer.write("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14")
    computer.write("usr/lib/x86_64-linux-gnu/libcuda.so.1")
    found = driver_library(computer.root)
    assert found.level == "error"
    assert (
        found.what
        == "the kernel runs the NVIDIA driver 535.104.05 and libcuda.so is of 550.54.14"
    )
    computer.write("usr/lib64/libcuda.so.535.104.05")
    assert driver_library(computer.root).level == "ok"


def test_a_processors_own_gpu_that_rocm_counts_beside_a_card(computer, monkeypatch):
    """ROCm/legacy-rocm-build#3401 and ROCm/TheRock#3392: the processor's comes first, as at Picasso."""
    rocm, said = TorchBuild("2.13.0+rocm6.4", hip="6.4"), []
    for node, (simds, device) in enumerate([(44, 0x15D8), (0, 0), (28, 0x73FF)]):
        text = (
            f"simd_count {simds}\ndevice_id {device}\ndrm_render_minor {128 + node}\n"
        )
        computer.write(f"sys/class/kfd/kfd/topology/nodes/{node}/properties", text)
        computer.write(f"dev/dri/renderD{128 + node}")
        said.append(processors_gpu(computer.root, rocm))
    assert [each.level for each in said] == ["ok", "ok", "warning"]
    assert (said[2].what[:12], said[2].step) == (
        "device 0 is ",
        "export HIP_VISIBLE_DEVICES=1",
    )
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert processors_gpu(computer.root, rocm).level == "ok"


OF_WINDOWS = [
    ((), "warning", "`wsl --update`"),
    (("dev/dxg",), "warning", "install NVIDIA's driver in Windows"),
    (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"), "ok", ""),
]


@pytest.mark.parametrize(("signs", "level", "step"), OF_WINDOWS)
def test_what_windows_gives_its_wsl2(computer, signs, level, step):
    """microsoft/WSL#7056: a driver was installed in WSL2, by a Windows that shows it no GPU."""
    cuda = TorchBuild("2.13.0", cuda="12.6")
    assert windows_driver(computer.root, cuda).level == "ok"  # no WSL2
    for sign in ("proc/sys/kernel/osrelease", *signs):
        computer.write(sign, "5.4.72-microsoft-standard-WSL2\n")
    found = windows_driver(computer.root, cuda)
    assert (found.level, step in found.step) == (level, True)
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
