"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

from __future__ import annotations

SEEN = [
    ("Torch not compiled with CUDA enabled", "accel setup cuda"),
    ("The NVIDIA driver on your system is too old (found version 11040).", "update the NVIDIA driver"),
    ("CUDA driver version is insufficient for CUDA runtime version", "update the NVIDIA driver"),
    ("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "nvidia-smi"),
    ("libcuda.so.1: cannot open shared object file: No such file or directory", "install the NVIDIA driver"),
    ("Failed to initialize NVML: Driver/library version mismatch", "reboot"),
    ("Error 803: system has unsupported display driver / cuda driver combination", "reboot"),
    ("Error 804: forward compatibility was attempted on non supported HW", "compatibility package"),
    ("Error 802: system not yet initialized", "nvidia-fabricmanager"),
    ("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing", "spawn"),
    ("CUDA error: all CUDA-capable devices are busy or unavailable", "COMPUTE"),
    ("No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES"),
    ("No HIP GPUs are available", "rocminfo"),
    ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
    ("CUDA error: invalid device ordinal", "device_count()"),
    ("CUDA error: no kernel image is available for execution on the device", "no kernels for this GPU"),
    ("CUDA unknown error - this may be due to an incorrectly set up environment", "nvidia_uvm"),
    ("CUDA out of memory. Tried to allocate 20.00 MiB.", "nvidia-smi"),
    ("libcudart.so.13: cannot open shared object file: No such file or directory", "reinstall torch"),
    ("libcublasLt.so.13: undefined symbol: cublasLtGetEnvironmentMode", "reinstall torch"),
    ("libcudnn_graph.so.9: cannot open shared object file", "reinstall torch"),
    ("libcusparseLt.so.0: cannot open shared object file", "reinstall torch"),
    ("libnccl.so.2: cannot open shared object file", "reinstall torch"),
    ("libnvrtc-builtins.so.13.0: cannot open shared object file", "reinstall torch"),
    ("libamdhip64.so.7: cannot open shared object file", "ROCm version"),
    ("librocm-core.so.1: cannot open shared object file", "ROCm version"),
]
