"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("libhccl.so: cannot open shared object file: No such file or directory", "accel setup npu"),
    ("libascendcl.so: cannot open shared object file: No such file or directory", "accel setup npu"),
    ("libge_runner.so: cannot open shared object file", "accel setup npu"),
    ("libascend_hal.so: cannot open shared object file: No such file or directory", "Ascend driver"),
    ("libdcmi.so: cannot open shared object file", "Ascend driver"),
    ("ASCEND_HOME_PATH : /x does not exist. Please run 'source set_env.sh'", "accel setup npu"),
    ("ASCEND_OPP_PATH environment variable is not set. Please check", "accel setup npu"),
    ("ASCEND_RUNTIME_PATH : /x/runtime does not exist.", "accel setup npu"),
    ("ASCEND_COMPILER_PATH : /x/compiler does not exist.", "accel setup npu"),
    ("Two accelerators cannot be used at the same time in PyTorch: npu and cuda.", "accel setup npu"),
    ("torch.register_privateuse1_backend() has already been set! Current backend: mlu", "another vendor"),
    ("/x/libtorch_npu.so: undefined symbol: aclAppLog", "does not fit torch_npu"),
    ("/x/libtorch_npu.so: undefined symbol: _ZN3c1010TensorImpl", "accel setup npu"),
    ("module 'torch_npu' has no attribute '_autoload'", "accel setup npu"),
    ("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing", "spawn"),
    ("NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 1.00 GiB total capacity", "npu-smi info"),
    ("Invalid device ID. Check whether the device ID is valid.", "device_count()"),
]
