"""What `accel doctor` looks into, on trees of files."""

import runpy
import sys

import pytest

import accel_cuda
from accel_cuda.checks import driver_library, unified_memory

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
    computer.write("dev/nvidia-uvm")
    assert unified_memory(computer.root).level == "ok"


@pytest.mark.parametrize("text", [NVRM, OPEN])
def test_a_driver_that_was_updated_under_a_running_kernel(computer, text):
    assert driver_library(computer.root).level == "ok"
    computer.write("proc/driver/nvidia/version", text.format("535.104.05"))
    assert driver_library(computer.root).level == "ok"  # the library may be anywhere else
    computer.write("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14")
    computer.write("usr/lib/x86_64-linux-gnu/libcuda.so.1")
    found = driver_library(computer.root)
    assert found.level == "error"
    assert found.what == "the kernel runs the NVIDIA driver 535.104.05 and libcuda.so is of 550.54.14"
    computer.write("usr/lib64/libcuda.so.535.104.05")
    assert driver_library(computer.root).level == "ok"


@pytest.mark.parametrize(("platform", "library"), [("linux", "nccl"), ("win32", "gloo")])
def test_the_communication_backend_is_the_platforms(monkeypatch, platform, library):
    monkeypatch.setattr(sys, "platform", platform)
    declared = runpy.run_path(accel_cuda.__file__)
    assert {declared[name].communication_backend for name in ("CUDA", "ROCM")} == {library}
