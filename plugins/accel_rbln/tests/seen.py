"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

COMPILER = "install rebel-compiler from Rebellions' package index"
MATCHING = "install the rebel-compiler made for your torch-rbln"

#: The first five came from the real import of 0.12.0: without rebel-compiler, and with libraries made for the
#: test in its place. The others are strings of its libraries.
SEEN = [
    ("Could not find librbln.so. No rebel-compiler distribution is installed for /venv/bin/python", COMPILER),
    ("RBLN ABI mismatch: this torch-rbln was built against rebel ABI 6, and librbln.so no longer", MATCHING),
    ("libc10_rbln.so: undefined symbol: _ZN4rbln23rbln_stream_synchronizeEm", MATCHING),
    ("Failed to load /lib/librbln.so (found via LD_LIBRARY_PATH): /lib/librbln.so: file too short", MATCHING),
    ("libtorch_rbln.so: undefined symbol: _ZN3c1010TensorImpl", "accel setup rbln"),
    ("Cannot set_device: the RBLN device runtime is not loaded; install the RBLN SDK/runtime", COMPILER),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=rbln"),
    ("RBLN_NPUS_PER_DEVICE must be a positive integer, got 0", "unset RBLN_DEVICE_MAP"),
    ("Physical NPU 9 out of range (this process has 2 physical NPU(s)). Env RBLN_DEVICE_MAP=[9]", "unset"),
    ("rbln_register_device_id failed; the device(s) may be in use by another process", "rbln-smi"),
    ("rbln_malloc_lazy failed (rbln:0, 4 bytes); the device may be out of memory", "rbln-smi"),
]
