"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("libcnrt.so: cannot open shared object file: No such file or directory", "NEUWARE_HOME"),
    ("please set NEUWARE_HOME: libcndrv.so", "NEUWARE_HOME"),
    ("libmluops.so: cannot open shared object file", "LD_LIBRARY_PATH"),
    ("torch_mlu/_MLUC.so: undefined symbol: _ZN3c105ErrorC2E", "accel setup mlu"),
    ("cannot import name '_MLUC' from 'torch_mlu'", "accel setup mlu"),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=mlu"),
    ("cninit failed: no driver", "cnmon"),
    ("Can't initialize CNDEV", "cnmon"),
    ("Cannot re-initialize MLU in forked subprocess. To use MLU with multiprocessing", "spawn"),
    ("MLU out of memory. Tried to allocate 20.00 GiB", "cnmon"),
]
