"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

DOCTOR = "torch_xmlir --doctor"

SEEN = [
    ("libxpurt.so.2: cannot open shared object file", "xpu-smi"),
    ("libcudart.so.12: cannot open shared object file", DOCTOR),
    ("_XMLIRC.so: undefined symbol: _ZN2at", "accel setup klxpu"),
    ("Deregister cuda aten ops error", DOCTOR),
    ("libbkcl.so: cannot open shared object file", "XRE"),
    ("libxpu_blas.so: cannot open shared object file", "XRE"),
    ("[ERROR][XPURT] Initialize default context for dev -1 fail", "xpu-smi"),
    ("Cannot re-initialize CUDA in forked subprocess", "spawn"),
    ("CUDA out of memory. Tried to allocate 20.00 GiB", "xpu-smi"),
]
