"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("libmccl.so.2: cannot open shared object file: No such file or directory", "$MUSA_HOME/lib"),
    ("MUSA error: no CUDA-capable device is detected", "mthreads-gmi"),
    ("/usr/local/musa/lib/libmusa.so.1.0: undefined symbol: PVRSRVGetDevInfo", "driver"),
    ("torch_musa/lib/libmusa_kernels.so: undefined symbol: _ZN2at18_GeneratorRegister", "accel setup musa"),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=musa"),
    ("Cannot re-initialize MUSA in forked subprocess. To use MUSA with multiprocessing", "spawn"),
    ("MUSA out of memory. Tried to allocate 20.00 GiB", "mthreads-gmi"),
]
