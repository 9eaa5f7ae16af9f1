"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SETVARS = "source /opt/tecoai/setvars.sh"

SEEN = [
    ("libsdaart.so: cannot open shared object file", SETVARS),
    ("libtecodnn_ext.so: cannot open shared object file", SETVARS),
    ("libtccl.so: cannot open shared object file", SETVARS),
    ("_C.so: undefined symbol: _ZN2at", "accel setup sdaa"),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=sdaa"),
    ("Cannot re-initialize SDAA in forked subprocess", "spawn"),
    ("SDAA out of memory. Tried to allocate 20.00 GiB", "teco-smi"),
]
