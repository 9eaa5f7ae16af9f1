"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("ERROR! Intel Extension for PyTorch* needs to work with PyTorch 2.8.*, but PyTorch", "accel setup xpu"),
    ("intel-extension-for-pytorch 2.8.10+xpu works with torch 2.8 only, and torch 2.13.0", "accel setup xpu"),
    ("module 'os' has no attribute 'exit'", "accel setup xpu"),
    ("Torch not compiled with XPU enabled", "accel setup xpu"),
    ("PyTorch was compiled without XPU support", "accel setup xpu"),
    ("Cannot re-initialize XPU in forked subprocess.", "spawn"),
    ("XPU out of memory. Tried to allocate 20.00 MiB.", "xpu-smi"),
    ("XPU device count is zero!", "render"),
    ("No device of requested type available", "render"),
    ("libsycl.so.8: cannot open shared object file: No such file or directory", "setvars.sh"),
    ("libccl.so.1: undefined symbol: MPI_Comm", "setvars.sh"),
    ("libintel-ext-pt-gpu.so: undefined symbol: _ZNK5torch8autograd4Node4nameB5cxx11Ev", "setvars.sh"),
    ("Required aspect fp64 is not supported on the device", "float32"),
    ("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "dmesg"),
]
