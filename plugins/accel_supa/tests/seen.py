"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SET_ENV = "brsw_set_env.sh"

SEEN = [
    ("libsupa-runtime.so: cannot open shared object file", SET_ENV),
    ("libcudart.so.12: cannot open shared object file", SET_ENV),
    ("libsupart functions unavailable.", SET_ENV),
    ("libbccl.so: cannot open shared object file", SET_ENV),
    ("libsudnn.so.1: cannot open shared object file", SET_ENV),
    ("libsublas.so: cannot open shared object file", SET_ENV),
    ("torch_supa/lib/libtorch_supa.so: undefined symbol: _ZN2at", "accel setup supa"),
    ("torch.register_privateuse1_backend() has already been set! Current: mlu", "DS_ACCELERATOR=supa"),
    ("SUPA out of memory. Tried to allocate 20.00 GiB", "brsmi"),
]
